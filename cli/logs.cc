// dtrain logs: what an experiment has printed, and with -f what it goes on to print.
#include "cli/logs.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>

#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/follow.h"
#include "cli/json_printer.h"
#include "cli/line_filter.h"
#include "cli/log_printer.h"
#include "cli/looked_at.h"
#include "cli/watch_view.h"
#include "schema/clock.h"
#include "schema/ids.h"
#include "schema/quote.h"
#include "schema/states.h"
#include "schema/text_formats.h"

namespace dtrain::cli {

namespace {

constexpr uint64_t kWholeLog = UINT64_MAX;
constexpr uint64_t kEveryAttempt = UINT64_MAX;
// Past the end of every journal.
constexpr uint64_t kOnlyNew = UINT64_MAX;

struct LogsOptions {
  std::string id;
  bool follow = false;
  uint64_t tail = kWholeLog;
  std::string since;
  std::string grep;
  uint64_t attempt = kEveryAttempt;
  bool raw = false;
  std::string time;
};

Result<std::unique_ptr<Printer>> printer_of(const LogsOptions& options,
                                            const CommandContext& context,
                                            const pb::ShowReply& shown) {
  std::function<bool(std::string_view)> matches;
  if (!options.grep.empty()) {
    TRY(matches, compile_filter(options.grep));
  }
  if (context.json) return std::unique_ptr<Printer>(std::make_unique<JsonPrinter>(matches));
  LogFormat format = log_format_of(screen_of(STDOUT_FILENO), options.time);
  format.start_unix_ms = shown.experiment().submitted_unix_ms();
  format.raw = options.raw;
  format.matches = std::move(matches);
  return std::unique_ptr<Printer>(std::make_unique<LogPrinter>(std::move(format)));
}

Status check_forms(const LogsOptions& options, const CommandContext& context) {
  if (options.raw && context.json) {
    return Error{Code::InvalidArgument, "--raw and --json are two forms of the same", "give one"};
  }
  if (options.attempt == 0) {
    return Error{Code::InvalidArgument, "--attempt 0: the first is 1", "without it every one is shown"};
  }
  return ok();
}

Result<int> logs(const LogsOptions& options, const CommandContext& context) {
  TRY(check_forms(options, context));
  // As the daemon has it: 0 is every one.
  const uint64_t attempt = options.attempt == kEveryAttempt ? 0 : options.attempt;
  std::optional<IdPattern> pattern;
  if (!options.id.empty()) {
    TRY(pattern, parse_id_pattern(options.id));
  }
  if (!options.grep.empty()) TRY(compile_filter(options.grep));
  uint64_t since_unix_ms = 0;
  if (!options.since.empty()) {
    TRY(since_unix_ms, parse_since(options.since, static_cast<uint64_t>(unix_ms())));
  }
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  TRY(const pb::ShowReply shown, look_up(connection, pattern ? to_string(pattern->experiment) : ""));
  const pb::ExperimentInfo& experiment = shown.experiment();
  const auto state = parse_state(experiment.state());
  const bool may_come = options.follow && !(state && is_terminal(*state));
  if (!may_come) TRY(check_attempt(shown, pattern, attempt));

  WatchOptions watching;
  watching.request.set_id(pattern ? to_string(*pattern) : experiment.id());
  watching.request.set_follow(options.follow);
  if (options.tail == 0) {
    watching.request.set_cursor(kOnlyNew);
  } else if (options.tail != kWholeLog) {
    watching.request.set_tail_lines(options.tail);
  }
  watching.request.set_since_unix_ms(since_unix_ms);
  watching.request.set_attempt(static_cast<uint32_t>(attempt));
  watching.fold = screen_of(STDOUT_FILENO).is_terminal;
  TRY(watching.printer, printer_of(options, context, shown));
  if (!options.follow) {
    std::string waiting = not_started_text(shown, pattern);
    std::fwrite(waiting.data(), 1, waiting.size(), stderr);
  }
  TRY(WatchEnd end, watch(connection, context, std::move(watching)));
  if (end.how == WatchHow::Detached && !options.follow) return kInterrupted;
  if (end.how == WatchHow::Detached) say_detached(experiment.id(), end.how);
  const bool whole = options.tail == kWholeLog && since_unix_ms == 0 && !(pattern && pattern->names_replicas());
  if (!whole) end.ending.expect_a_part();
  bool told = end.how == WatchHow::Over && options.follow && !options.raw && !context.json;
  if (told && !end.outcome.id().empty()) {
    Screen screen = screen_of(STDERR_FILENO);
    TRY(const ExperimentId id, parse_experiment_id(experiment.id()));
    const std::string output = typed_output(experiment.project_dir(), id.number, shown.output_dir());
    add_hint(connection, end.outcome);
    std::string text = end.ending.text(end.outcome, output, screen);
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
  return 0;
}

}  // namespace

Result<uint64_t> parse_since(const std::string& text, uint64_t now_unix_ms) {
  if (auto ago_ms = parse_duration_ms(text)) {
    uint64_t ago = static_cast<uint64_t>(*ago_ms);
    return ago < now_unix_ms ? now_unix_ms - ago : 1;
  }
  std::time_t now = static_cast<std::time_t>(now_unix_ms / 1000);
  // A clock time alone is when it last was so late; a date without Z is in this machine's zone.
  for (const char* form :
       {"%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S",
        "%Y-%m-%d %H:%M", "%Y-%m-%d", "%H:%M:%S", "%H:%M"}) {
    std::tm parts{};
    localtime_r(&now, &parts);
    parts.tm_hour = parts.tm_min = parts.tm_sec = 0;
    const char* end = strptime(text.c_str(), form, &parts);
    if (end == nullptr || *end != '\0') continue;
    parts.tm_isdst = -1;
    bool utc = text.back() == 'Z';
    std::time_t seconds = utc ? timegm(&parts) : mktime(&parts);
    if (const bool is_clock = form[1] == 'H'; is_clock && seconds > now) {
      --parts.tm_mday;
      parts.tm_isdst = -1;
      seconds = mktime(&parts);
    }
    if (seconds > 0) return static_cast<uint64_t>(seconds) * 1000;
  }
  return Error{Code::InvalidArgument, fmt::format("--since {} is no time", in_quotes(text)),
               "how long ago: 10m, 2h; or when: 14:30, 2026-01-31T14:30:00Z"};
}

Status check_attempt(const pb::ShowReply& shown, const std::optional<IdPattern>& pattern,
                     uint64_t attempt) {
  uint32_t newest = 0;
  if (pattern && pattern->names_replicas()) {
    for (const pb::ReplicaInfo& replica : shown.replicas()) {
      const auto id = parse_replica_id(replica.id());
      if (!id.ok() || !pattern->matches(id.value())) continue;
      // One that an elastic gang has no room for now may have been in any attempt before.
      newest = std::max(newest, replica.attempt() == 0 ? shown.experiment().attempt() : replica.attempt());
    }
  } else {
    newest = shown.experiment().attempt();
  }
  for (const pb::ExperimentInfo& member : shown.members()) {
    newest = std::max(newest, member.attempt());
  }
  if (attempt <= newest) return ok();
  const std::string id = pattern ? to_string(*pattern) : shown.experiment().id();
  if (newest == 0) return Error{Code::NotFound, fmt::format("{} had no attempt yet", id), ""};
  return Error{Code::NotFound,
               fmt::format("{} had no attempt {}; its newest is {}", id, attempt, newest),
               fmt::format("dtrain logs {} --attempt {}", id, newest)};
}

std::string not_started_text(const pb::ShowReply& shown, const std::optional<IdPattern>& pattern) {
  auto waits = [](const std::string& state) {
    return state == to_string(State::Created) || state == to_string(State::Pending) || state == to_string(State::Suspended);
  };
  const pb::ExperimentInfo& experiment = shown.experiment();
  if (waits(experiment.state()) && experiment.attempt() == 0) {
    return fmt::format("{} has not started yet: {}{}{}\n", experiment.id(), experiment.state(),
                       experiment.reason().empty() ? "" : ": ", experiment.reason());
  }
  std::string ids;
  for (const pb::ReplicaInfo& replica : shown.replicas()) {
    if (!waits(replica.state()) || replica.attempt() > 0) continue;
    auto id = parse_replica_id(replica.id());
    if (pattern && id.ok() && !pattern->matches(id.value())) continue;
    ids += (ids.empty() ? "" : ", ") + replica.id();
  }
  return ids.empty() ? "" : fmt::format("Not started yet: {}\n", ids);
}

Run declare_logs(Options& options, CommandContext& context) {
  auto typed = std::make_shared<LogsOptions>();
  options.id(typed->id,
                     "4, 4.2, 4.worker or 4.worker.1; left out: the newest of this project");
  options.flag("-f,--follow", typed->follow, "go on until it is over; waits for what has not started");
  options.number("-n,--tail", typed->tail, "from the Nth last line of output on");
  options.text("--since", typed->since, "only what is newer: 10m, 14:30, 2026-01-31T14:30:00Z",
               "TIME");
  options.text("--grep", typed->grep, "only lines that match, and no states", "REGEX");
  options.number("--attempt", typed->attempt, "only this launch; every one when left out");
  options.flag("--raw", typed->raw, "the bytes alone, as they were printed");
  options.choice("--time", typed->time, {"clock", "elapsed", "iso"}, "the time before log lines");
  options.json(context);
  options.footer(
      "--tail counts the lines that replicas printed, before --grep; states come along from there\n"
      "on and are not counted. --tail 0 -f shows only what is new.\n\n"
      "dtrain logs -f\ndtrain logs 4.worker.1 --tail 100\ndtrain logs 4 --grep loss=");
  return [typed, &context] { return logs(*typed, context); };
}

}  // namespace dtrain::cli
