// dtrain wait: until experiments are over; the exit code of the first that did not finish well.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/follow.h"
#include "cli/watch_view.h"
#include "schema/ids.h"
#include "schema/problems.h"

namespace dtrain::cli {

namespace {

// Ctrl-C while waiting: the experiments go on, but there is no outcome to tell.
constexpr int kInterrupted = 130;

Result<int> wait_for(const std::vector<std::string>& typed, const CommandContext& context) {
  for (const std::string& id : typed) {
    TRY(const IdPattern pattern, parse_id_pattern(id));
    if (pattern.names_replicas()) {
      return Error{Code::InvalidArgument, fmt::format("{} is a part of an experiment", id),
                   fmt::format("dtrain wait {}", to_string(pattern.experiment))};
    }
  }
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  std::vector<std::string> ids = typed;
  if (ids.empty()) {
    pb::ShowRequest newest;
    newest.set_project_dir(project_dir());
    TRY(const pb::ShowReply shown, connection.show(newest));
    ids.push_back(shown.experiment().id());
  }
  // A mistake in the last is told now, and not when the first is over.
  std::vector<Error> refused;
  std::vector<std::string> output_dirs;
  for (const std::string& id : ids) {
    pb::ShowRequest one;
    one.set_id(id);
    auto shown = connection.show(one);
    if (shown.ok()) {
      output_dirs.push_back(shown->output_dir());
    } else {
      refused.push_back(std::move(shown).error());
    }
  }
  if (!refused.empty()) return joined(std::move(refused));
  int exit_code = 0;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string& id = ids[i];
    WatchOptions watching;
    watching.request.set_id(id);
    watching.request.set_follow(true);
    watching.request.set_states_only(true);
    TRY(const WatchEnd end, watch(connection, context, std::move(watching)));
    if (end.how == WatchHow::Detached) return kInterrupted;
    fmt::print("{}", context.json ? end_json(end.outcome, output_dirs[i], ask_for_best(connection, id))
                                  : fmt::format("{} {}\n", id, end.outcome.state()));
    std::fflush(stdout);
    if (exit_code == 0) exit_code = exit_code_of(end.outcome);
  }
  return exit_code;
}

}  // namespace

Run declare_wait(Options& options, CommandContext& context) {
  auto ids = std::make_shared<std::vector<std::string>>();
  options.positionals("ID", *ids,
                      "experiments (4), members (4.2); left out: the newest of this project");
  options.json(context);
  options.footer("dtrain train -d && dtrain wait && dtrain output ls");
  return [ids, &context] { return wait_for(*ids, context); };
}

}  // namespace dtrain::cli
