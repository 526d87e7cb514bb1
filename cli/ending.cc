#include "cli/ending.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cli/escapes.h"
#include "cli/launcher_report.h"
#include "cli/line_splitter.h"
#include "cli/remote.h"
#include "cli/words.h"
#include "schema/engine_spec.h"
#include "schema/ids.h"
#include "schema/spec.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace {

constexpr size_t kTailBytes = 8192;   // with what launchers say behind the cause

std::vector<std::string> lines_of(std::string_view tail) {
  std::vector<std::string> lines;
  while (!tail.empty()) {
    size_t end = tail.find('\n');
    std::string_view line = last_version(tail.substr(0, end));
    if (!line.empty()) lines.push_back(screen_text(line, 0));
    tail.remove_prefix(end == std::string_view::npos ? tail.size() : end + 1);
  }
  lines = without_launcher_report(std::move(lines));
  if (lines.size() > kLastLines) lines.erase(lines.begin(), lines.end() - kLastLines);
  return lines;
}

std::string took(const pb::ExperimentInfo& outcome) {
  uint64_t from = outcome.started_unix_ms();
  if (from == 0 || outcome.finished_unix_ms() < from) return "";
  uint64_t took_ms = outcome.finished_unix_ms() - from;
  // What human_duration calls a second is one: 994 ms may be a whole `max-duration`.
  return took_ms < 500 ? " in under a second" : " after " + human_duration(took_ms);
}

std::string members_text(const pb::ExperimentInfo& outcome) {
  const std::string early = outcome.members_ended_early() == 0 ? "" : fmt::format(", {} of them early", outcome.members_ended_early());
  const std::string killed = outcome.members_killed() == 0 ? "" : fmt::format(", {} killed", outcome.members_killed());
  return fmt::format("{} of {} members finished{}, {} failed{}", outcome.members_finished(), outcome.members(), early,
                     outcome.members_failed() - outcome.members_killed(), killed);
}

// Of a set that a rule of its own ended, which: what its reason says after its count.
std::string rule_of(const pb::ExperimentInfo& outcome) {
  const size_t at = outcome.reason().find("; ");
  return at == std::string::npos ? "" : outcome.reason().substr(at);
}

}  // namespace

bool engine_refused(const pb::ExperimentInfo& info) {
  return info.framework() == to_string(Framework::Engine) && info.members() == 0 &&
         info.state() == to_string(State::Failed) && info.exit_code() == kEngineRefusedCode;
}

bool lacks_container_program(const pb::ExperimentInfo& info) {
  return info.state() == to_string(State::Failed) && info.reason().find(": neither podman nor docker is there") != std::string::npos;
}

std::string bad_ends(const pb::ExperimentInfo& set) {
  const uint32_t killed = set.members_killed(), failed = set.members_failed() - killed;
  return (failed > 0 ? fmt::format(", {} failed", failed) : "") + (killed > 0 ? fmt::format(", {} killed", killed) : "");
}

std::string rerun_text(const pb::ExperimentInfo& info) {
  if (engine_refused(info)) {
    return fmt::format("{} rerun {} --set KEY=VALUE (as it was, it is refused again)", called(), info.id());
  }
  if (lacks_container_program(info)) return fmt::format("{} rerun {} --no-image", called(), info.id());
  if (info.members_finished() > 0 && info.members_failed() > 0) return fmt::format("{} rerun {} --failed", called(), info.id());
  // Members go on by themselves. What never started has no checkpoint.
  const bool may_resume = info.framework() == to_string(Framework::Engine) && info.members() == 0 &&
                          info.started_unix_ms() != 0;
  return fmt::format("{} rerun {}{}", called(), info.id(),
                     may_resume ? " (--resume: from its newest checkpoint, if it has one)" : "");
}

std::string last_lines_text(const std::string& replica, const std::vector<std::string>& lines, bool colours) {
  std::string out = fmt::format("Last lines of {}:\n", replica);
  for (const std::string& line : lines) out += paint("  | ", Ink::Red, colours) + line + '\n';
  return out;
}

std::optional<Cause> cause_in(const std::string& reason) {
  const size_t colon = reason.find(": ");
  if (colon == std::string::npos) return std::nullopt;
  std::string replica = reason.substr(0, colon);
  if (!parse_replica_id(replica).ok()) return std::nullopt;
  return Cause{std::move(replica), reason.substr(colon + 2)};
}

// What it printed in attempts before says nothing of this one's end.
Ending::Tail& Ending::tail_of(const std::string& replica, uint32_t attempt) {
  Tail& tail = tails_[replica];
  if (attempt > tail.attempt) tail = {attempt, ""};
  return tail;
}

void Ending::add(const pb::LogChunk& chunk) {
  std::string& tail = tail_of(chunk.replica(), chunk.attempt()).text;
  std::string_view data = chunk.data();
  if (data.size() >= kTailBytes) {
    tail.assign(data.substr(data.size() - kTailBytes));
    return;
  }
  tail += data;
  // Cut now and then and not every time: moving bytes for each small chunk would cost.
  if (tail.size() > 2 * kTailBytes) tail.erase(0, tail.size() - kTailBytes);
}

void Ending::add_experiment(const pb::StateEvent& event) {
  const auto id = parse_experiment_id(event.id());
  if (!id.ok()) return;
  // What it was stopping for has led to another attempt.
  if (event.state() == to_string(State::Restarting)) failures_.erase(*id);
  const bool fixed =
      event.state() == to_string(State::Stopping) || event.state() == to_string(State::Failed);
  if (!fixed) return;
  // The cause is told when it is fixed; the replicas follow in whatever order they are gone.
  auto cause = cause_in(event.reason());
  if (!cause) return;
  Failure& failure = failures_.try_emplace(*id, Failure{std::move(*cause), "", {}}).first->second;
  if (!event.printer().empty()) failure.printer = event.printer();   // known once all of them have ended
}

bool Ending::add(const pb::StateEvent& event) {
  auto replica = parse_replica_id(event.id());
  if (!replica.ok()) {
    add_experiment(event);
    return false;
  }
  tail_of(event.id(), event.attempt());
  auto state = parse_state(event.state());
  if (!state || !is_terminal(*state)) return false;
  auto found = failures_.find(replica.value().experiment);
  if (found == failures_.end() || found->second.cause.replica == event.id()) return false;
  found->second.followers.insert(event.id());
  return true;
}

std::vector<std::string> Ending::last_lines(const std::string& replica) const {
  auto tail = tails_.find(replica);
  if (tail == tails_.end()) return {};
  std::string_view bytes = tail->second.text;
  if (bytes.size() > kTailBytes) {
    bytes.remove_prefix(bytes.size() - kTailBytes);
    bytes.remove_prefix(std::min(bytes.find('\n') + 1, bytes.size()));
  }
  return lines_of(bytes);
}

std::optional<Ending::Failure> Ending::failure_of(const pb::ExperimentInfo& outcome) const {
  if (outcome.members() > 0) {
    // The first member in order that failed.
    const bool any = outcome.members_failed() > 0 && !failures_.empty();
    return any ? std::optional(failures_.begin()->second) : std::nullopt;
  }
  if (outcome.state() != to_string(State::Failed)) return std::nullopt;
  // Who watches one replica is not told of the experiment but here.
  auto cause = cause_in(outcome.reason());
  if (!cause) return std::nullopt;
  const auto id = parse_experiment_id(outcome.id());
  const auto found = id.ok() ? failures_.find(*id) : failures_.end();
  return Failure{std::move(*cause), outcome.printer(),
                 found == failures_.end() ? std::set<std::string>() : found->second.followers};
}

std::string Ending::failure_text(const Failure& failure, const Screen& screen) const {
  std::string out;
  const std::string& replica = failure.cause.replica;
  const std::vector<std::string> lines = last_lines(replica);
  if (lines.empty() && !whole_) {
    out += fmt::format("Its last lines: {} logs {} --tail {}\n", called(), replica, kLastLines);
  } else if (lines.empty()) {
    const auto tail = tails_.find(replica);
    const uint32_t attempt = tail == tails_.end() ? 0 : tail->second.attempt;
    out += fmt::format("{} printed nothing{}.\n", replica, attempt > 1 ? fmt::format(" in attempt {}", attempt) : "");
  } else {
    out += last_lines_text(replica, lines, screen.colours);
  }
  if (const auto said = last_lines(failure.printer); !said.empty()) out += last_lines_text(failure.printer, said, screen.colours);
  if (!failure.followers.empty()) {
    out += fmt::format("+{} ended because of it\n", failure.followers.size());
  }
  return out;
}

std::string Ending::text(const pb::ExperimentInfo& outcome, const std::string& output, const Screen& screen,
                         const std::string& best) const {
  bool failed = outcome.state() == to_string(State::Failed);
  std::string word = outcome.state();
  std::transform(word.begin(), word.end(), word.begin(),
                 [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  std::string first = fmt::format("{} {}{}", outcome.id(), word, took(outcome));
  if (outcome.members() > 0) first += ": " + members_text(outcome) + rule_of(outcome);
  const std::optional<Failure> failure = failure_of(outcome);
  if (failure && outcome.members() > 0) {
    first += fmt::format(": {}: {}", failure->cause.replica, failure->cause.what);
  } else if (!outcome.reason().empty() && outcome.members() == 0 && !says_state(outcome.reason(), outcome.state())) {
    first += ": " + outcome.reason();
  }
  std::string out = paint(folded(first, screen.width), ink_of_state(outcome.state()), screen.colours) + '\n';
  if (failure) out += failure_text(*failure, screen);
  if (!outcome.hint().empty()) out += folded(fmt::format("  hint: {}\n", outcome.hint()), screen.width);
  if (!best.empty()) out += folded(fmt::format("Best: {}\n", best), screen.width);
  if (!output.empty()) out += fmt::format("Output: {}\n", output);
  const std::string looking = outcome.reason().starts_with(kCameAfter)   // as it is it would be refused
                                  ? fmt::format("{} why {}", called(), outcome.id())
                                  : fmt::format("{} status {}, {}", called(), outcome.id(), rerun_text(outcome));
  if (failure) {
    out += fmt::format("Next: {} logs {}, {}\n", called(), failure->printer.empty() ? failure->cause.replica : failure->printer, looking);
  } else if (failed && outcome.reason().starts_with("nothing was printed for")) {
    out += fmt::format("Next: {} logs {}, {}\n", called(), outcome.id(), looking);
  } else if (failed) {
    out += fmt::format("Next: {}\n", looking);
  }
  return out;
}

}  // namespace dtrain::cli
