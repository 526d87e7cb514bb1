#include "cli/why.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/ending.h"
#include "cli/experiment_view.h"
#include "cli/failure_hint.h"
#include "cli/fields.h"
#include "cli/json_output.h"
#include "cli/looked_at.h"
#include "cli/remote.h"
#include "cli/watch_view.h"
#include "cli/words.h"
#include "schema/ids.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace {

State state_of(const std::string& word) {
  return parse_state(word).value_or(State::Pending);
}

std::string set_summary(const pb::ExperimentInfo& info) {
  return fmt::format("{}: {} running, {} finished{}",
                     human_count(info.members(), "member"), info.members_running(),
                     info.members_finished(), bad_ends(info));
}

// What a replica printed and wrote may have a long way.
std::string how_it_ends(const pb::ShowReply& reply) {
  for (const pb::ReplicaInfo& replica : reply.replicas()) {
    if (!replica.exited() || state_of(replica.state()) != State::Stopping) continue;
    return fmt::format("its outcome is fixed; what {} printed and wrote still comes from {}", replica.id(), replica.seat().host_name());
  }
  return "its outcome is fixed, and it is about to end";
}

// For states whose reason is in their name, when the daemon gave none.
std::string usual_reason(const pb::ShowReply& reply) {
  switch (state_of(reply.experiment().state())) {
    case State::Created:
      return "held back: as many members run as `concurrency` allows";
    case State::Pending:
      return "waits for its place";
    case State::Building:
      return "its environment is being built";
    case State::Starting:
      return "its processes are being started";
    case State::Running:
      return "it runs; nothing holds it up";
    case State::Stopping:
      return how_it_ends(reply);
    case State::Restarting:
      return "between two attempts";
    case State::Suspended:
      return "suspended";
    case State::Finished:
      return "it ended well: its deciding replica exited with code 0";
    case State::Failed:
      return "it failed";
    case State::Killed:
      return "it was killed";
    case State::Lost:
      return "its host is gone";
  }
  return "";
}

}  // namespace

Why find_why(const pb::ShowReply& reply) {
  const pb::ExperimentInfo& info = reply.experiment();
  const State state = state_of(info.state());
  Why why;
  why.hint = info.hint();
  why.reason = info.reason();
  if (info.members() != 0) {
    if (why.reason.empty()) why.reason = set_summary(info);
    const auto waits = [](const pb::ExperimentInfo& member) { return state_of(member.state()) == State::Pending; };
    if (const uint32_t running = info.members_running(); state == State::Running && running > 0) {
      why.reason += fmt::format("; {} run{}", running, running == 1 ? "s" : "");
      if (std::ranges::none_of(reply.members(), waits)) why.reason += fmt::format(", and nothing holds {} up", running == 1 ? "it" : "them");
    }
    for (const auto& member : reply.members()) {
      const bool tells = is_terminal(state) ? state_of(member.state()) == State::Failed : waits(member);
      if (!tells) continue;
      why.hint = fmt::format("dtrain why {}", member.id());
      break;
    }
    why.hint = as_called(std::move(why.hint));
    return why;
  }
  if (why.reason.empty()) why.reason = usual_reason(reply);
  if (state == State::Failed) {
    if (auto cause = cause_in(why.reason)) {
      why.replica = std::move(cause->replica);
      for (const auto& replica : reply.replicas()) {
        if (replica.id() == why.replica) why.attempt = replica.attempt();
      }
      why.log_tells = cause->what.find("exit code") != std::string::npos;
    }
  }
  if (state == State::Suspended && why.hint.empty()) why.hint = fmt::format("dtrain resume {} lets it go on", info.id());
  if (state == State::Failed && why.hint.empty()) why.hint = failure_hint(reply);
  if (info.started_unix_ms() != 0 || state == State::Building) {
    const std::string of = why.replica.empty() ? info.id() : why.replica;
    why.log_command =
        fmt::format("{} logs {}{}", called(), of, is_terminal(state) ? " --tail 50" : " -f");
  }
  why.hint = as_called(std::move(why.hint));
  return why;
}

void add_log_lines(Why& why, Connection& connection, const CommandContext& context) {
  if (!why.log_tells) return;
  WatchOptions watching;
  watching.request.set_id(why.replica);
  constexpr uint32_t kTailLines = 100;   // of which some may be a launcher's
  watching.request.set_tail_lines(kTailLines);
  watching.request.set_attempt(why.attempt);   // those before said theirs
  const auto end = watch(connection, context, std::move(watching));
  if (end.ok()) why.log_lines = end->ending.last_lines(why.replica);
}

std::string telling_line(const Why& why) {
  const auto says = [](const std::string& line) {
    return line.find_first_of(" \t") != 0 &&
           std::ranges::any_of(line, [](unsigned char c) { return c >= 0x80 || std::isalnum(c) != 0; });
  };
  const auto found = std::find_if(why.log_lines.rbegin(), why.log_lines.rend(), says);
  if (found != why.log_lines.rend()) return *found;
  return why.log_lines.empty() ? "" : why.log_lines.back();
}

std::string render_why(const pb::ExperimentInfo& info, const Why& why, const View& view) {
  const bool over = info.finished_unix_ms() != 0, began = info.started_unix_ms() != 0;
  const std::string since = human_ago(over    ? info.finished_unix_ms()
                                      : began ? info.started_unix_ms()
                                              : info.submitted_unix_ms(),
                                      view.now_unix_ms);
  Fields fields;
  std::string state = state_cell(info.state());
  // Since when it is in this state is known of an end only.
  if (!since.empty()) state += (over ? ", " : began ? ", started " : ", submitted ") + since;
  fields.add(info.id(), state);
  fields.add("Why", why.reason);
  fields.add("Hint", why.hint);
  fields.add("Log", why.log_command);
  std::string text = fields.text(view.screen);
  if (!why.log_lines.empty()) text += last_lines_text(why.replica, why.log_lines, view.screen.colours);
  return text;
}

Run declare_why(Options& options, CommandContext& context) {
  auto id = std::make_shared<std::string>();
  options.id(*id,
                     "an experiment (4) or member (4.2); left out: the newest of this project");
  options.json(context);
  return [id, &context]() -> Result<int> {
    IdPattern pattern;
    // A replica's reason is its experiment's, as far as one reason goes.
    if (!id->empty()) {
      TRY(pattern, parse_id_pattern(*id));
    }
    TRY(Connection connection, connect(Autostart::IfNeeded, context));
    TRY(const pb::ShowReply reply, look_up(connection, id->empty() ? "" : to_string(pattern.experiment)));
    // Before its first place it has none yet.
    if (pattern.names_replicas() && !reply.replicas().empty()) TRY(replicas_named(reply, pattern));
    Why why = find_why(reply);
    add_log_lines(why, connection, context);
    const View view = view_of_stdout();
    fmt::print("{}", context.json ? why_json(reply.experiment(), why)
                                  : render_why(reply.experiment(), why, view));
    return 0;
  };
}

}  // namespace dtrain::cli
