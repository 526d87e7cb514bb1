// dtrain wait: until experiments are over; the exit code of the first that did not finish well.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>

#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/errors.h"
#include "cli/follow.h"
#include "cli/id_ranges.h"
#include "cli/looked_at.h"
#include "cli/sink.h"
#include "cli/watch_view.h"
#include "schema/clock.h"
#include "schema/ids.h"
#include "schema/problems.h"
#include "schema/quote.h"
#include "schema/states.h"
#include "schema/text_formats.h"

namespace dtrain::cli {

namespace {

// As timeout(1) has it.
constexpr int kTimeIsOver = 124;

struct WaitOptions {
  std::vector<std::string> ids;
  std::optional<std::string> timeout;
};

// By boottime_ms(); 0: there is no limit.
Result<int64_t> end_of_time(const WaitOptions& options) {
  if (!options.timeout) return 0;
  const auto timeout_ms = parse_duration_ms(*options.timeout);
  if (!timeout_ms) {
    return Error{Code::InvalidArgument, fmt::format("--timeout {}: expected a duration such as 5m or 1h30m", in_quotes(*options.timeout)), ""};
  }
  return boottime_ms() + *timeout_ms;
}

// Of one that was not waited for to its end. Nothing: it is not over, which `pending` then says.
std::optional<pb::ExperimentInfo> end_so_far(Connection& connection, const std::string& id, std::vector<std::string>& pending) {
  pb::ShowRequest one;
  one.set_id(id);
  const auto shown = connection.show(one);
  if (shown.ok() && is_over(shown->experiment().state())) return shown->experiment();
  pending.push_back(shown.ok() ? fmt::format("{} ({})", id, shown->experiment().state()) : id);
  return std::nullopt;
}

// A set may have finished, and some of its members not: the exit code is of one of these.
std::string end_line(const std::string& id, const pb::ExperimentInfo& outcome) {
  std::string text = id + " " + outcome.state();
  const uint32_t killed = outcome.members_killed(), failed = outcome.members_failed() - killed;
  if (outcome.state() != to_string(State::Finished) || failed + killed == 0) return text + "\n";
  text += fmt::format(": {} of {} members {}", failed > 0 ? failed : killed, outcome.members(), failed > 0 ? "failed" : "killed");
  return text + (failed > 0 && killed > 0 ? fmt::format(", {} killed\n", killed) : "\n");
}

Result<int> wait_for(const WaitOptions& options, const CommandContext& context) {
  const std::vector<std::string>& typed = options.ids;
  TRY(const int64_t until_ms, end_of_time(options));
  for (const std::string& id : typed) {
    if (is_range(id)) continue;
    TRY(const IdPattern pattern, parse_id_pattern(id));
    if (pattern.names_replicas()) {
      return Error{Code::InvalidArgument, fmt::format("{} is a part of an experiment", id),
                   fmt::format("dtrain wait {}", to_string(pattern.experiment))};
    }
  }
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  TRY(std::vector<std::string> ids, without_ranges(typed, connection, [](const auto&) { return true; }));
  if (ids.empty()) {
    TRY(const pb::ShowReply newest, look_up(connection, ""));
    ids.push_back(newest.experiment().id());
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
  bool is_late = false;
  std::vector<std::string> pending;
  for (size_t i = 0; i < ids.size(); ++i) {
    const std::string& id = ids[i];
    std::optional<pb::ExperimentInfo> outcome;
    if (!is_late) {
      WatchOptions watching;
      watching.request.set_id(id);
      watching.request.set_follow(true);
      watching.request.set_states_only(true);
      watching.until_ms = until_ms;
      TRY(WatchEnd end, watch(connection, context, std::move(watching)));
      if (end.how == WatchHow::Detached) return kInterrupted;
      is_late = end.how == WatchHow::TimeOver;
      if (!is_late) outcome = std::move(end.outcome);
    }
    // The others may be over all the same.
    if (!outcome) outcome = end_so_far(connection, id, pending);
    if (!outcome) continue;
    fmt::print("{}", context.json ? end_json(*outcome, output_dirs[i], ask_for_best(connection, id))
                                  : end_line(id, *outcome));
    if (std::fflush(stdout) != 0) return output_error(errno);
    if (exit_code == 0) exit_code = exit_code_of(*outcome);
  }
  if (pending.empty()) return exit_code;
  print_error({Code::DeadlineExceeded,
               fmt::format("not over after {}: {}", format_duration_ms(*parse_duration_ms(*options.timeout)), fmt::join(pending, ", ")), ""},
              context.json);
  return kTimeIsOver;
}

}  // namespace

Run declare_wait(Options& options, CommandContext& context) {
  auto typed = std::make_shared<WaitOptions>();
  options.ids(typed->ids,
                      "experiments (4, 4-9), members (4.2); left out: the newest of this project");
  options.text("--timeout", typed->timeout, "no longer than that: 5m; exit code 124 if something is not over then", "TIME");
  options.json(context);
  options.footer("dtrain train -d && dtrain wait && dtrain output ls");
  return [typed, &context] { return wait_for(*typed, context); };
}

}  // namespace dtrain::cli
