// dtrain tensorboard: where the TensorBoard of an experiment is. One that has none, or whose own has
// ended with it, gets one: an experiment of its own, which shows that one's OUTPUT_DIR until it is
// killed.
#include "schema/tensorboard.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/forwarded_ports.h"
#include "cli/json_output.h"
#include "cli/looked_at.h"
#include "cli/remote.h"
#include "cli/submit.h"
#include "schema/ids.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace {

// What has ended or is suspended shows nothing.
bool may_show(const std::string& state) { return !is_over(state) && state != to_string(State::Suspended); }

constexpr std::string_view kSays = "TensorBoard: ";
constexpr size_t kSaidMaxBytes = 64 << 10;

// What it waits for before it runs.
void say_what_it_waits_for(const pb::StateEvent& event) {
  const bool is_placed = event.state() != to_string(State::Pending) && event.state() != to_string(State::Building);
  if (is_placed || (event.reason().empty() && event.state() == to_string(State::Pending))) return;
  fmt::print(stderr, "{} is {}{}{}\n", event.id(), event.state(), event.reason().empty() ? "" : ": ", event.reason());
}

// Waits until the replica has printed its address. Its own words where it ends before.
// `tells`: what it waits for, too, which it has not long done.
Result<std::string> address_of(Connection& connection, const std::string& replica, bool tells) {
  const std::string_view alone = ".train";   // all of an experiment
  pb::WatchRequest request;
  request.set_id(replica.ends_with(alone) ? replica.substr(0, replica.size() - alone.size()) : replica);
  request.set_follow(true);
  RpcCall call(connection.channel(), kWatchMethod);
  if (!call.write(request)) return call.finish().error();
  call.writes_done();
  std::string said, reason;
  bool ended = false;
  pb::WatchBatch batch;
  while (!ended && call.read(batch)) {
    for (const pb::WatchItem& item : batch.items()) {
      if (item.has_log()) said += item.log().data();
      if (item.has_state() && item.state().id() == request.id()) {
        ended = is_over(item.state().state());
        reason = item.state().reason();
        if (tells) say_what_it_waits_for(item.state());
      }
    }
    for (size_t at = said.find(kSays); at != std::string::npos; at = said.find(kSays, at + 1)) {
      const size_t end = said.find('\n', at);
      if ((at == 0 || said[at - 1] == '\n') && end != std::string::npos) {
        return said.substr(at + kSays.size(), end - at - kSays.size());
      }
    }
    if (said.size() > kSaidMaxBytes) said.erase(0, said.size() - kSaidMaxBytes / 2);
    ended = ended || batch.end();
  }
  if (!ended) {
    if (auto status = call.finish(); !status.ok()) return std::move(status).error();
  }
  while (said.ends_with('\n')) said.pop_back();
  const std::string last = said.substr(said.rfind('\n') + 1);
  return Error{Code::FailedPrecondition,
               fmt::format("{} ended before it showed anything: {}", replica,
                           last.empty() ? reason : last),
               fmt::format("{} why {}", called(), replica.substr(0, replica.rfind('.')))};
}

// Its own, as long as that lives; "" without.
std::string own_board(const pb::ShowReply& shown) {
  for (const auto& replica : shown.replicas()) {
    const auto id = parse_replica_id(replica.id());
    if (id.ok() && id->role == Role::Tensorboard && may_show(replica.state())) return replica.id();
  }
  return "";
}

std::string board_name(const std::string& id) {
  return "TensorBoard of " + id;
}

// What an experiment shows that was started by this command; "" of any other.
Result<std::string> shown_by(const pb::ShowReply& shown) {
  const std::string& name = shown.experiment().name();
  if (!name.starts_with(board_name(""))) return std::string();
  ParseOptions parsing;
  parsing.file_name = fmt::format("experiment {}", shown.experiment().id());
  TRY(const Spec spec, parse_spec(shown.spec_yaml(), parsing));
  return spec.env.contains(kTensorboardLogdir) ? name.substr(board_name("").size()) : std::string();
}

// One that was started for it before; "" without.
Result<std::string> other_board(Connection& connection, const std::string& id) {
  TRY(const pb::ListReply list, connection.list({}));
  for (const auto& info : list.experiments()) {
    if (info.name() == board_name(id) && may_show(info.state())) return info.id() + ".train";
  }
  return std::string();
}

// An experiment with nothing of the other but its python. The package comes from the index, into an environment that all
// of these share; a python that has shown this one before has it, and is where it ran.
Result<Spec> board_spec(const pb::ShowReply& shown) {
  ParseOptions parsing;
  parsing.file_name = fmt::format("experiment {}", shown.experiment().id());
  TRY(const Spec original, parse_spec(shown.spec_yaml(), parsing));
  RoleSpec role = tensorboard_role();
  role.role = Role::Train;
  role.on_failure = OnFailure::Fail;
  Spec spec;
  spec.project = original.project;
  spec.name = board_name(shown.experiment().id());
  spec.python = original.python;
  spec.roles = {std::move(role)};
  spec.env = {{kTensorboardLogdir, shown.output_dir()}};
  if (!original.tensorflow.tensorboard || original.has_build()) {
    spec.install = {"pip install tensorboard 'setuptools<81'"};
  } else {
    spec.hosts = original.hosts;
  }
  return spec;
}

Result<std::string> start_board(Connection& connection, const CommandContext& context,
                                const pb::ShowReply& shown) {
  TRY(const Spec spec, board_spec(shown));
  TRY(const pb::SubmitHeader header, header_again(spec, shown));
  TRY(const pb::Accepted accepted, submit(connection, context, header, nullptr, {}));
  if (!context.json) {
    std::fprintf(stderr, "Experiment %u is the TensorBoard of %s; %s kill %u ends it\n",
                 accepted.number(), shown.experiment().id().c_str(), called().c_str(), accepted.number());
  }
  return fmt::format("{}.train", accepted.number());
}

// Where the address may be out of reach: that of a daemon of another machine, or of another host.
void say_how_to_reach(const std::string& replica, const std::string& address) {
  const bool elsewhere = !remote_machine().empty();
  const std::string words = forward_words(replica, address);
  if (words.empty() || (!elsewhere && is_loopback_url(address))) return;
  std::fflush(stdout);
  fmt::print(stderr, "{}: {} {}\n", elsewhere ? "To reach it from here" : "Where it is out of reach", called(), words);
}

Result<int> tensorboard(const std::string& typed, const CommandContext& context) {
  std::string asked;
  if (!typed.empty()) {
    TRY(const IdPattern pattern, parse_id_pattern(typed));
    asked = to_string(pattern.experiment);
  }
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  TRY(pb::ShowReply shown, look_up(connection, asked));
  TRY(const std::string other, shown_by(shown));
  if (!other.empty()) {
    TRY(shown, look_up(connection, other));
  }
  bool is_new = false;
  std::string replica = own_board(shown);
  if (replica.empty()) {
    TRY(replica, other_board(connection, shown.experiment().id()));
  }
  if (replica.empty()) {
    TRY(replica, start_board(connection, context, shown));
    is_new = true;
  }
  TRY(const std::string address, address_of(connection, replica, is_new && !context.json));
  if (context.json) {
    fmt::print("{}", tensorboard_json(shown.experiment().id(), replica, address));
  } else {
    fmt::print("{}\n", address);
    say_how_to_reach(replica, address);
  }
  return 0;
}

}  // namespace

Run declare_tensorboard(Options& options, CommandContext& context) {
  auto id = std::make_shared<std::string>();
  options.id(*id,
                     "experiment, set or member; left out: the newest of this project");
  options.json(context);
  options.footer("dtrain tensorboard 4");
  return [id, &context] { return tensorboard(*id, context); };
}

}  // namespace dtrain::cli
