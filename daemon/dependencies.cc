#include "daemon/dependencies.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace dtrain::daemon {

namespace {

constexpr size_t kNamedMost = 5;

bool names(const std::vector<ExperimentId>& ids, const ExperimentId& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Of what is live, or ended in this step.
State state_now(const Model& model, const ExperimentId& id) {
  if (const auto found = model.experiments.find(id); found != model.experiments.end() && !found->second.is_shared()) {
    return state_of(found->second);
  }
  return set_state(model.sets.at(id.number));
}

std::string named(const Model& model, const std::vector<ExperimentId>& ids) {
  std::string text;
  for (size_t i = 0; i < std::min(ids.size(), kNamedMost); ++i) {
    const char* between = i == 0 ? "" : i + 1 == ids.size() ? " and " : ", ";
    const bool unreadable = model.unreadable.contains(ids[i].number);
    const std::string_view state = unreadable ? kUnreadable : to_string(state_now(model, ids[i]));
    text += fmt::format("{}{} ({})", between, to_string(ids[i]), state);
  }
  if (ids.size() > kNamedMost) text += fmt::format(" and {} more", ids.size() - kNamedMost);
  return text;
}

void wait_no_more(Model& model, const Submission& submission) {
  const auto remove = [&](const ExperimentId& id) {
    const auto found = model.awaited.find(id);
    if (found == model.awaited.end()) return;
    found->second.erase(submission.number);
    if (found->second.empty()) model.awaited.erase(found);
  };
  std::for_each(submission.spec.after.begin(), submission.spec.after.end(), remove);
  std::for_each(submission.spec.after_end.begin(), submission.spec.after_end.end(), remove);
}

void one_is_over(Turn& turn, const ExperimentId& awaited, State end, uint32_t number) {
  const std::vector<ExperimentId> waiting = live_of(turn.model, {number, 0});
  if (waiting.empty()) return;
  const Submission& submission = *turn.model.experiments.at(waiting.front()).submission;
  if (end == State::Finished || !names(submission.spec.after, awaited)) {
    turn.perhaps_begin.insert(number);
    return;
  }
  const std::string why = fmt::format("was to come after {}, which is {}", to_string(awaited), to_string(end));
  for (const ExperimentId& id : waiting) {
    Experiment& experiment = *turn.touch(id);
    if (!experiment.outcome) fix_outcome(turn, experiment, State::Failed, nullptr, why);
    settle(turn, experiment, false);
  }
}

}  // namespace

bool lives(const Model& model, const ExperimentId& id) {
  if (model.unreadable.contains(id.number)) return true;
  const auto found = model.experiments.find(id);
  const bool is_one = id.member != 0 || (found != model.experiments.end() && !found->second.submission->spec.is_set());
  if (is_one) return found != model.experiments.end() && !found->second.over;
  const auto next = model.live.lower_bound(id);
  return next != model.live.end() && next->number == id.number;
}

std::vector<ExperimentId> awaited_by(const Model& model, const Spec& spec) {
  std::vector<ExperimentId> ids;
  const auto add = [&](const ExperimentId& id) {
    if (lives(model, id) && !names(ids, id)) ids.push_back(id);
  };
  std::for_each(spec.after.begin(), spec.after.end(), add);
  std::for_each(spec.after_end.begin(), spec.after_end.end(), add);
  return ids;
}

std::string awaited_text(const Model& model, const Spec& spec) {
  std::vector<ExperimentId> finish = awaited_by(model, spec), end;
  std::copy_if(finish.begin(), finish.end(), std::back_inserter(end),
               [&](const ExperimentId& id) { return !names(spec.after, id); });
  std::erase_if(finish, [&](const ExperimentId& id) { return names(end, id); });
  std::string text;
  if (!finish.empty()) text = fmt::format("waits for {} to finish", named(model, finish));
  if (!end.empty()) text += fmt::format("{}waits for {} to end", text.empty() ? "" : "; ", named(model, end));
  return text;
}

void begin_to_wait(Model& model, const Submission& submission) {
  for (const ExperimentId& id : awaited_by(model, submission.spec)) model.awaited[id].insert(submission.number);
}

bool fail_with_ended(Turn& turn) {
  Model& model = turn.model;
  for (const ExperimentId& ended : std::exchange(turn.ended, {})) {
    if (model.awaited.empty()) break;
    const Experiment& experiment = model.experiments.at(ended);
    if (!lives(model, ended.set())) wait_no_more(model, *experiment.submission);
    for (const ExperimentId& id : std::set{ended, ended.set()}) {
      const auto found = model.awaited.find(id);
      if (found == model.awaited.end() || lives(model, id)) continue;
      const State end = state_now(model, id);
      const std::set<uint32_t> waiting = std::move(found->second);
      model.awaited.erase(found);
      for (const uint32_t number : waiting) one_is_over(turn, id, end, number);
    }
  }
  return !turn.touched.empty();
}

void end_awaited_unreadable(Turn& turn, uint32_t number) {
  std::vector<std::pair<ExperimentId, std::set<uint32_t>>> waiting;
  for (auto it = turn.model.awaited.lower_bound({number, 0}); it != turn.model.awaited.end() && it->first.number == number;) {
    waiting.emplace_back(it->first, std::move(it->second));
    it = turn.model.awaited.erase(it);
  }
  for (const auto& [id, numbers] : waiting) {
    for (const uint32_t who : numbers) one_is_over(turn, id, State::Killed, who);
  }
}

void let_begin(Turn& turn) {
  for (const uint32_t number : turn.perhaps_begin) {
    const std::vector<ExperimentId> waiting = live_of(turn.model, {number, 0});
    if (waiting.empty() || !awaited_by(turn.model, turn.model.experiments.at(waiting.front()).submission->spec).empty()) continue;
    for (const ExperimentId& id : waiting) hold_no_more(turn, turn.model.experiments.at(id), &Experiment::awaits);
  }
}

}  // namespace dtrain::daemon
