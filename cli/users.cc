// users: whose keys open this daemon to people on other machines.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/json_output.h"
#include "cli/key_file.h"
#include "cli/remote.h"
#include "cli/table.h"
#include "cli/users.h"
#include "cli/view.h"

namespace dtrain::cli {

namespace {

struct UserInvitation {
  std::string name, address, file;
  bool admin = false;
};

Result<int> invite_user(const UserInvitation& words, const CommandContext& context) {
  TRY(const std::string file, key_file(words.name, words.file));
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  pb::InviteUserRequest request;
  request.set_name(words.name);
  request.set_address(words.address);
  request.set_admin(words.admin);
  TRY(const pb::InviteReply reply, connection.invite_user(request));
  TRY(write_key(file, reply.key(), [&] {
    pb::RevokeUserRequest back;
    back.set_name(words.name);
    (void)connection.revoke_user(back).ok();
  }));
  // Without a '/' it would be a machine that SSH reaches.
  const std::string as_typed = file.find('/') == file.npos && !file.ends_with(".key") ? "./" + file : file;
  fmt::print("{} is {}'s key{}, by {}. Keep it as you keep an SSH key. Wherever {} works, with this version of dtrain:\n"
             "  export DTRAIN_ON=PATH/{}     # or: dtrain --on {} train\n",
             file, words.name, words.admin ? " to do everything" : "", reply.daemon(), words.name,
             std::filesystem::path(file).filename().string(), as_typed);
  return 0;
}

Result<int> revoke_user(const std::string& name, const CommandContext& context) {
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  pb::RevokeUserRequest request;
  request.set_name(name);
  TRY(const pb::RevokeUserReply reply, connection.revoke_user(request));
  fmt::print("{}'s key opens nothing any more\n", name);
  if (!reply.live().empty()) {
    fmt::print("There goes on what is theirs: {}. {} kill {} ends it\n", fmt::join(reply.live(), ", "), called(), fmt::join(reply.live(), " "));
  }
  return 0;
}

Result<int> show(const CommandContext& context) {
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  TRY(const pb::UsersReply reply, connection.users());
  const View view = view_of_stdout();
  fmt::print("{}", context.json ? to_json(reply) : render_users(reply, view.screen));
  return 0;
}

}  // namespace

std::string render_users(const pb::UsersReply& reply, const Screen& screen) {
  std::string out;
  if (!reply.users().empty()) {
    Table table;
    table.columns = {{"USER", 12, 0, true}, {"ROLE", 5, 0, true}};
    for (const auto& user : reply.users()) table.rows.push_back({{user.name()}, {user.admin() ? "admin" : "user"}});
    out = render(table, screen);
  }
  if (!reply.user().empty()) return out + fmt::format("You are {}\n", reply.user());
  return out.empty() ? as_called("Nobody has a key: `dtrain users invite NAME` makes one\n") : out;
}

Run declare_users(Options& options, CommandContext& context) {
  options.subcommand("invite", "make a key by which a person uses this daemon over the network", [&context](Options& of) -> Run {
    auto words = std::make_shared<UserInvitation>();
    of.positional("NAME", words->name, "what the person is called, best as their account", true);
    of.flag("--admin", words->admin, "let them do everything: hosts, users, what is others'");
    of.text("--address", words->address, "how they reach this machine; left out: as config.yml says", "ADDRESS");
    of.text("-o,--output", words->file, "where to write the key; left out: NAME.key", "FILE");
    return [&context, words] { return invite_user(*words, context); };
  });
  options.subcommand("revoke", "end a person's key; what they run goes on", [&context](Options& of) -> Run {
    auto name = std::make_shared<std::string>();
    of.positional("NAME", *name, "who they were invited as", true);
    return [&context, name] { return revoke_user(*name, context); };
  });
  options.json(context);
  return [&context] { return show(context); };
}

}  // namespace dtrain::cli
