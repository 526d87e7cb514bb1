#include "daemon/wait_reason.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/claims.h"
#include "daemon/dependencies.h"
#include "daemon/failure_rules.h"
#include "daemon/fair_share.h"
#include "daemon/growth.h"
#include "daemon/placement_elastic.h"
#include "daemon/placement_explain.h"
#include "daemon/placement_fitness.h"
#include "daemon/preemption.h"
#include "daemon/queue.h"
#include "daemon/quota.h"

namespace dtrain::daemon {

namespace {

std::string left_out(const Model& model, const Experiment& experiment, const Choice& choice) {
  std::string text;
  for (const HostId& id : choice.excluded) {
    const auto host = model.hosts.find(id);
    if (host == model.hosts.end() || !host->second.connected || is_unfit(experiment, id)) continue;
    text += fmt::format("{}{}", text.empty() ? "; left out for what failed there: " : ", ",
                        host->second.name);
  }
  return text;
}

// As in a pass: the first ahead of it that has a claim.
std::optional<ExperimentId> who_keeps_hosts(const Model& model, const FairShare& share, const Experiment& experiment, TimeMs now) {
  for (const QueueOrder& order : model.regrowing) {
    if (order.id != experiment.id) return order.id;
  }
  for (const auto& [to, who] : model.giving_way) {
    const auto found = model.experiments.find(to);
    if (found != model.experiments.end() && is_queued(found->second) && share.goes_before(found->second, experiment)) return to;
  }
  std::vector<const Experiment*> ahead;
  for (const auto& [lane, waiting] : model.queue.lanes) {
    const Experiment& first = model.experiments.at(waiting.begin()->id);
    if (share.goes_before(first, experiment)) ahead.push_back(&first);
  }
  std::ranges::sort(ahead, [&](const Experiment* a, const Experiment* b) { return share.goes_before(*a, *b); });
  for (const Experiment* head : ahead) {
    if (reserve(model, *head, now)) return head->id;
  }
  return std::nullopt;
}

std::string building_text(const Model& model, const Experiment& experiment) {
  std::string made, sought;
  for (const Replica& replica : experiment.replicas) {
    if (!is_build(replica) || replica.end) continue;
    const auto host = model.hosts.find(replica.seat.host);
    const std::string& name = host == model.hosts.end() ? replica.seat.host.hex : host->second.name;
    const bool runs = replica.progress == Progress::Started;
    std::string& text = runs ? made : sought;
    text += (text.empty() ? "" : ", ") + name;
    if (runs) text += fmt::format(" ({})", to_string(replica.id));
  }
  if (made.empty()) return "its environment is looked for on " + sought;
  return "its environment is being built on " + made +
         (sought.empty() ? "" : "; looked for on " + sought);
}

std::string growing_text(const Model& model, const Experiment& experiment, TimeMs now) {
  const int missing = missing_workers(experiment);
  if (missing == 0) return "";
  std::string text = "has " + workers_text(experiment.spec(), missing);
  if (!may_grow(experiment)) return text;
  const std::optional<Room> left = quota_left(model, experiment);
  text += left && !is_within(experiment.spec(), *left) ? fmt::format(", and is begun again with more when the quota of {} has room", experiment.submission->user)
                                                       : ", and is begun again with more when there is room";
  const TimeMs wait_ms = experiment.grows_from_ms - now;
  return wait_ms <= 0 ? text : text + fmt::format(", not within the next {} s", (wait_ms + 999) / 1000);
}

std::string share_text(const FairShare& share, const Experiment& experiment) {
  const std::string& user = experiment.submission->user;
  return fmt::format("; {} has {:.0f} % of what there is, and who has less goes first", user, 100 * share.part_of(user, experiment.spec().preemptible));
}

}  // namespace

std::string wait_reason(const Model& model, const ExperimentId& id, TimeMs now) {
  const auto found = model.experiments.find(id);
  if (found == model.experiments.end()) return "";
  const Experiment& experiment = found->second;
  if (experiment.outcome) return "";
  if (experiment.suspended) {
    return experiment.phase == Phase::None ? suspended_text(id) : "suspended";
  }
  if (experiment.awaits) return awaited_text(model, experiment.submission->spec);
  if (experiment.held) return fmt::format("held by concurrency: {}", experiment.spec().concurrency);
  if (experiment.failure) return failure_text(*experiment.failure);
  if (experiment.phase == Phase::Ending) return experiment.gave_way_to ? gave_way_text(model, experiment) : experiment.wait_reason;
  if (experiment.phase == Phase::Building) return building_text(model, experiment);
  if (experiment.phase != Phase::None) {
    const std::string text = growing_text(model, experiment, now);
    return text.empty() || experiment.excluded_hosts.empty() ? text : text + left_out(model, experiment, choice_of(model, experiment));
  }
  if (experiment.not_before_ms != 0) {
    // It is in no lane yet, not even when its time has come and the tick that says so has not.
    if (experiment.not_before_ms <= now) return experiment.wait_reason + "; again now";
    return fmt::format("{}; again in {} s", experiment.wait_reason,
                       (experiment.not_before_ms - now + 999) / 1000);
  }
  constexpr int kCountedMax = 1000;
  const FairShare share(model);
  int ahead = 0;
  bool was_passed = false;   // by who came later, and whose user has less
  for (const auto& [lane, waiting] : model.queue.lanes) {
    const Experiment& first = model.experiments.at(waiting.begin()->id);
    const bool is_own = first.submission->user == experiment.submission->user;
    if (!is_own && !over_quota_text(model, first).empty()) continue;   // which holds up its own user only
    for (auto it = waiting.begin(); it != waiting.end() && ahead < kCountedMax; ++it) {
      if (!share.goes_before(model.experiments.at(it->id), experiment)) break;
      ++ahead;
      was_passed = was_passed || (it->behind == order_of(experiment).behind && experiment.id < it->id);
    }
  }
  Choice choice = choice_of(model, experiment);
  choice.now = now;
  choice.whole = !experiment.regrows && now < model.elastic_from_ms;
  const std::string over = over_quota_text(model, experiment);
  if (!over.empty()) choice.quota_left.reset();   // to see what it would wait for besides
  const Placement placement = place(id, experiment.spec(), model.free, choice);
  std::string reason;
  if (const auto* waits = std::get_if<Waits>(&placement)) reason = waits->reason;
  if (const auto* never = std::get_if<Never>(&placement)) {
    reason = never->reason + "; " + never->hint;
  }
  if (!over.empty()) reason = over + (reason.empty() ? "" : "; ") + reason;
  if (reason.empty()) {
    if (const auto other = who_keeps_quota(model, experiment, choice.whole)) {
      return kept_quota_text(*other, experiment.submission->user);
    }
    const auto ahead_of_it = who_keeps_hosts(model, share, experiment, now);
    if (!ahead_of_it) return "is placed next";
    return fmt::format("{} is ahead of it and keeps its hosts free", to_string(*ahead_of_it)) + (was_passed ? share_text(share, experiment) : "");
  }
  if (experiment.gave_way_to && model.live.contains(*experiment.gave_way_to)) reason = gave_way_text(model, experiment) + "; " + reason;
  if (const auto giving = model.giving_way.find(id); giving != model.giving_way.end()) {
    reason += "; " + give_way_text(giving->second);
  } else if (experiment.preempts_from_ms > now) {
    reason += fmt::format("; others gave way to it before, and do not again within the next {} s", (experiment.preempts_from_ms - now + 999) / 1000);
  }
  if (const auto asked = model.asked.find(id); asked != model.asked.end()) reason += "; " + asked->second;
  if (experiment.unfit_hosts) {
    // Of those that are known none is left, or it would not wait.
    if (std::holds_alternative<Never>(placement)) reason = "waits for hosts that may yet come back";
    reason = lacks_text(model, experiment) + "; " + reason;
  }
  reason += left_out(model, experiment, choice);
  if (ahead > 0 && std::holds_alternative<Waits>(placement)) {
    reason += fmt::format("; {}{} experiment{} ahead of it", ahead,
                          ahead == kCountedMax ? " or more" : "", ahead == 1 ? "" : "s");
    if (was_passed) reason += share_text(share, experiment);
  }
  return reason;
}

}  // namespace dtrain::daemon
