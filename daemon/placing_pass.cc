#include "daemon/placing_pass.h"

#include "daemon/growth.h"
#include "daemon/placement_elastic.h"
#include "daemon/placement_explain.h"
#include "daemon/queue.h"

namespace dtrain::daemon {

namespace {

// 0: nobody knows. How long a build takes nobody does.
TimeMs over_by(const Spec& spec, TimeMs now) {
  return spec.max_duration_ms > 0 && !spec.has_build() ? now + spec.max_duration_ms + spec.stop_grace_ms : 0;
}

}  // namespace

void PlacingPass::begin() {
  begun_ = true;
  for (const QueueOrder& order : model_.regrowing) {
    const Experiment& experiment = model_.experiments.at(order.id);
    claims_.add({order, kept_for_growth(model_, experiment, now_)});
  }
  for (const auto& [lane, waiting] : model_.queue.lanes) turns_.add(*waiting.begin(), lane);
}

void PlacingPass::go_on_behind(const QueueOrder& order, const std::string& lane) {
  const std::set<QueueOrder>& waiting = model_.queue.lanes.at(lane);
  const auto behind = waiting.upper_bound(order);
  if (behind != waiting.end()) turns_.add(*behind, lane);
}

std::optional<PlacingPass::Found> PlacingPass::next() {
  if (!begun_) begin();
  while (!turns_.empty()) {
    const auto [order, lane] = turns_.take_first();
    const Experiment& experiment = model_.experiments.at(order.id);
    if (quotas_.is_over(experiment)) {   // and so are those behind it in its lane
      refused_.push_back(order.id);
      if (prospect_of(model_, experiment, lane).stretch > 0) quotas_.wait_for(experiment);
      continue;
    }
    if (auto placed = try_place(experiment, lane)) {
      go_on_behind(order, lane);
      return Found{order.id, std::move(*placed)};
    }
    refused_.push_back(order.id);
    if (settles(experiment)) keep_for_settling(experiment);
    const bool promised = is_promised_room(experiment, lane);
    // For those behind it others may give way, too.
    if (promised || experiment.preempts_from_ms > now_) go_on_behind(order, lane);
    if (promised) continue;
    if (reserved_) continue;
    if (auto claim = reserve(model_, experiment, now_)) {
      reserved_ = true;
      quotas_.keep(experiment);
      claims_.add(std::move(*claim));
    }
  }
  return std::nullopt;
}

// Where others end, or give way to it now: what they have is kept for it from those behind it.
bool PlacingPass::is_promised_room(const Experiment& experiment, const std::string& lane) {
  if (!preemption_.concerns(experiment)) return false;
  const auto [readmitted, stretch] = prospect_of(model_, experiment, lane);
  if (stretch == 0) return false;   // not even empty hosts would do
  Asking asking{order_of(experiment), experiment.spec(), choice_with(model_, experiment, readmitted), stretch};
  asking.choice.quota_left = quotas_.left_for(experiment);
  asking.choice.now = now_;
  asking.choice.kept_free = claims_.left_beside_promises(asking.order, over_by(experiment.spec(), now_));
  auto claim = preemption_.ask(asking);
  if (!claim) return false;
  claims_.add(std::move(*claim));
  quotas_.keep(experiment);
  return true;
}

std::optional<Placed> PlacingPass::try_place(const Experiment& experiment, const std::string& lane) {
  const Spec& spec = experiment.spec();
  const TimeMs over_ms = over_by(spec, now_);
  size_t readmitted = 0;
  if (!experiment.excluded_hosts.empty()) readmitted = prospect_of(model_, experiment, lane).readmitted;
  Choice choice = choice_with(model_, experiment, readmitted);
  choice.quota_left = quotas_.left_for(experiment);
  choice.now = now_;
  choice.whole = !experiment.regrows && now_ < model_.elastic_from_ms;
  choice.kept_free = claims_.left_for(order_of(experiment), over_ms);
  Placed placed;
  if (auto seats = fit_largest(experiment.id, spec, model_.free, choice)) {
    placed.seats = std::move(*seats);
  } else {
    const double stretch = prospect_of(model_, experiment, lane).stretch;
    if (stretch <= 1 || (spec.elastic && choice.whole)) return std::nullopt;
    auto shared = fit(experiment.id, LeastGang(spec).spec(), model_.free, choice, stretch);
    if (!shared) return std::nullopt;
    placed.seats = std::move(*shared);
    placed.notice = sharing_notice(spec, placed.seats, model_.free, choice);
  }
  claims_.drop(order_of(experiment));
  claims_.take(placed.seats, over_ms);
  return placed;
}

// It would begin with fewer workers than it asks for, and waits some seconds for more room.
bool PlacingPass::settles(const Experiment& experiment) const {
  return experiment.spec().elastic && !experiment.regrows && now_ < model_.elastic_from_ms;
}

// Nobody takes meanwhile what it could have had.
void PlacingPass::keep_for_settling(const Experiment& experiment) {
  model_.deadlines.insert({model_.elastic_from_ms, ExperimentId{}});
  Choice choice = choice_of(model_, experiment);
  choice.now = now_;
  choice.kept_free = claims_.left_for(order_of(experiment), 0);
  const auto seats = fit_largest(experiment.id, experiment.spec(), model_.free, choice);
  if (!seats) return;
  settling_ = true;
  quotas_.keep(experiment);
  claims_.add({order_of(experiment), rooms_without(model_.free, *seats)});
}

}  // namespace dtrain::daemon
