#include "cli/kill.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/id_ranges.h"
#include "cli/json_output.h"
#include "cli/list_filter.h"
#include "cli/newest.h"
#include "cli/remote.h"
#include "cli/submit.h"
#include "cli/words.h"
#include "schema/clock.h"
#include "schema/ids.h"
#include "schema/problems.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace {

struct KillOptions {
  std::vector<std::string> ids;
  bool force = false;
};

// A replica alone can't be killed: its gang would fail with it, or start it again.
Status refuse_replicas(const std::string& text) {
  TRY(const IdPattern pattern, parse_id_pattern(text));
  if (!pattern.names_replicas()) return ok();
  const std::string whole = to_string(pattern.experiment);
  return Error{Code::InvalidArgument,
               fmt::format("{} names replicas, and only an experiment is killed as a whole", text),
               fmt::format("dtrain kill {}", whole)};
}

Result<int> kill(const KillOptions& options, const CommandContext& context) {
  std::vector<Error> refused;
  for (const std::string& id : options.ids) {
    if (is_range(id)) continue;
    if (auto status = refuse_replicas(id); !status.ok()) {
      refused.push_back(std::move(status).error());
    }
  }
  if (!refused.empty()) return joined(std::move(refused));
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  pb::KillRequest request;
  request.set_force(options.force);
  request.set_user(user_name());
  TRY(const auto ids, without_ranges(options.ids, connection, may_be_changed));
  for (const std::string& id : ids) request.add_ids(id);
  if (options.ids.empty()) {
    TRY(pb::ListReply live, connection.list({}));
    keep_matching({key_user(), {}}, live);
    TRY(const std::string newest, newest_to_kill(live, project_dir()));
    request.add_ids(newest);
  }
  TRY(const pb::KillReply reply, connection.kill(request));
  if (context.json) {
    fmt::print("{}", to_json(reply));
    return 0;
  }
  for (const auto& item : reply.items()) {
    pb::ShowRequest one;
    one.set_id(item.id());
    const auto shown = connection.show(one);
    const pb::ExperimentInfo now = shown.ok() ? shown->experiment() : pb::ExperimentInfo();
    fmt::print("{}", render_killed(item, now, static_cast<uint64_t>(unix_ms())));
  }
  return 0;
}

}  // namespace

std::string render_killed(const pb::KillReply::Item& item, const pb::ExperimentInfo& experiment,
                          uint64_t now_unix_ms) {
  const auto state = parse_state(experiment.state());
  const bool gone = state && is_terminal(*state);
  std::string text;
  if (item.already_over()) text = item.message();
  if (text.empty() && item.already_over()) text = fmt::format("{} is over already", item.id());
  // What was STOPPING when the daemon answered may have ended since.
  if (gone && item.already_over()) text = fmt::format("{} is already {}", item.id(), experiment.state());
  if (text.empty()) text = fmt::format("{} is {}", item.id(), gone ? "killed" : "being killed");
  if (!item.already_over() && !item.message().empty()) text += "; " + item.message();
  if (!state) return text + "\n";   // of what can't be read there is none to wait for
  if (!gone) return fmt::format("{}; {} wait {} returns when it has ended\n", text, called(), item.id());
  if (item.already_over() && experiment.finished_unix_ms() != 0) {
    text += fmt::format(" (ended {})", human_ago(experiment.finished_unix_ms(), now_unix_ms));
  }
  return text + "\n";
}

Run declare_kill(Options& options, CommandContext& context) {
  auto typed = std::make_shared<KillOptions>();
  options.ids(typed->ids,
                      "experiments (4, 4-9), members (4.2); left out: the newest of this project that runs");
  options.flag("-f,--force", typed->force, "at once, without the time to save that TERM gives");
  options.json(context);
  return [typed, &context] { return kill(*typed, context); };
}

}  // namespace dtrain::cli
