#include "daemon/growth.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "daemon/claims.h"
#include "daemon/fair_share.h"
#include "daemon/placement_elastic.h"
#include "daemon/preemption.h"
#include "daemon/quota.h"
#include "daemon/supposition.h"

namespace dtrain::daemon {

namespace {

constexpr TimeMs kGrowEveryMs = 1'000;
constexpr size_t kGangsAtOnce = 4;
// With more than that ahead of it, it is not its turn.
constexpr size_t kAheadMost = 32;
// So many of them are asked what they keep free, until one keeps something.
constexpr int kClaimsAsked = 4;

// Of those that wait the first of each kind, and those that come back, in the order of their turns; one more than are looked at
// where there are more.
std::vector<const Experiment*> ahead_of(const Model& model, const Experiment& own) {
  const FairShare share(model);
  std::vector<const Experiment*> ahead;
  const auto look_at = [&](const ExperimentId& id) {
    const Experiment& other = model.experiments.at(id);
    if (id != own.id && share.goes_before(other, own)) ahead.push_back(&other);
    return ahead.size() <= kAheadMost;
  };
  for (const auto& [lane, waiting] : model.queue.lanes) {
    if (!look_at(waiting.begin()->id)) return ahead;
  }
  for (const QueueOrder& order : model.returning) {
    if (!look_at(order.id)) return ahead;
  }
  std::ranges::sort(ahead, [&](const Experiment* a, const Experiment* b) { return share.goes_before(*a, *b); });
  return ahead;
}

// Too little is left of its max-duration for it to pay.
bool ends_soon(const Experiment& experiment, TimeMs now) {
  const Spec& spec = experiment.spec();
  return spec.max_duration_ms > 0 && now + spec.elastic->grow_after_ms >= experiment.run_since_ms + spec.max_duration_ms;
}

// Where one that comes back would go.
std::optional<std::vector<Seat>> seats_again(Model& model, const Experiment& other, const Choice& choice) {
  if (other.regrows) return fit_largest(other.id, other.spec(), model.free, choice);
  return fit(other.id, LeastGang(other.spec()).spec(), model.free, choice);
}

Choice choice_at(const Model& model, const Experiment& experiment, TimeMs now) {
  Choice choice = choice_of(model, experiment);
  choice.now = now;
  return choice;
}

}  // namespace

TimeMs grows_from(const Spec& spec, TimeMs now) {
  if (!spec.elastic || spec.elastic->grow_after_ms == Elastic::kNever) return 0;
  return std::max<TimeMs>(now + spec.elastic->grow_after_ms, 1);
}

bool may_grow(const Experiment& experiment) {
  const auto& elastic = experiment.spec().elastic;
  if (!elastic || elastic->grow_after_ms == Elastic::kNever || missing_workers(experiment) == 0) return false;
  if (experiment.over || experiment.outcome || experiment.phase != Phase::Go || !all_started(experiment)) return false;
  // What has done its part would do it again.
  return std::none_of(experiment.replicas.begin(), experiment.replicas.end(), [](const Replica& replica) {
    return !is_build(replica) && replica.end == State::Finished;
  });
}

bool is_growing(const Experiment& experiment) { return experiment.grows_from_ms == 0 && may_grow(experiment); }

bool is_returning(const Experiment& experiment) {
  if (experiment.over || experiment.outcome || experiment.suspended) return false;
  return experiment.phase == Phase::Ending || (wants_place(experiment) && !is_queued(experiment));
}

std::optional<std::vector<Seat>> larger_gang(Model& model, const Experiment& experiment, TimeMs now) {
  if (ends_soon(experiment, now) || !can_be_stopped(model, experiment)) return std::nullopt;
  const std::vector<const Experiment*> ahead = ahead_of(model, experiment);
  if (ahead.size() > kAheadMost || has_other_ahead(model, experiment, ahead)) return std::nullopt;
  Supposition supposed(model.free);
  for (const Experiment* one : ahead) {
    const Experiment& other = *one;
    if (is_queued(other)) continue;   // there is no room for it, or it would have its place
    if (holds_any_seat(other)) return std::nullopt;   // for how long nobody knows: what is begun again now may be done first
    const auto seats = seats_again(model, other, choice_at(model, other, now));
    if (!seats) continue;
    supposed.take(*seats);
  }
  supposed.give_all(experiment);
  std::optional<Claim> kept;
  int asked = 0;
  for (const Experiment* one : ahead) {
    const Experiment& other = *one;
    if (!is_queued(other)) continue;
    Choice choice = choice_at(model, other, now);
    if (kept) choice.kept_free = &kept->others_may_use;
    if (fit(other.id, LeastGang(other.spec()).spec(), model.free, choice)) return std::nullopt;   // it would take it
    if (!over_quota_text(model, other).empty()) continue;   // it keeps no hosts free
    if (!kept && asked++ < kClaimsAsked) kept = reserve(model, other, now);
  }
  Choice choice = choice_at(model, experiment, now);
  choice.whole = now < model.elastic_from_ms;
  if (kept) choice.kept_free = &kept->others_may_use;
  auto seats = fit_largest(experiment.id, experiment.spec(), model.free, choice);
  if (seats && missing_workers(experiment.spec(), *seats) < missing_workers(experiment)) return seats;
  return std::nullopt;
}

RoomByHost kept_for_growth(Model& model, const Experiment& experiment, TimeMs now) {
  if (!can_be_stopped(model, experiment)) return {};   // nobody knows for how long
  Supposition supposed(model.free);
  supposed.give_all(experiment);
  const auto seats = fit_largest(experiment.id, experiment.spec(), model.free, choice_at(model, experiment, now));
  if (!seats) return {};
  return rooms_without(model.free, *seats);
}

void grow_one(Turn& turn) {
  Model& model = turn.model;
  if (model.growing.empty() || is_room_promised(model)) return;
  const bool is_time = turn.now >= model.grow_next_ms;
  if (is_time) {
    model.grow_next_ms = turn.now + kGrowEveryMs;
    std::vector<QueueOrder> some;
    auto from = model.growing.size() <= kGangsAtOnce ? model.growing.begin() : model.growing.upper_bound(model.grow_looked_at);
    for (size_t n = std::min(kGangsAtOnce, model.growing.size()); n > 0; --n, ++from) {
      if (from == model.growing.end()) from = model.growing.begin();
      some.push_back(*from);
    }
    for (const QueueOrder& order : some) {
      model.grow_looked_at = order;
      const auto seats = larger_gang(model, model.experiments.at(order.id), turn.now);
      if (!seats) continue;
      Experiment& experiment = *turn.touch(order.id);
      const std::string size = workers_text(experiment.spec(), missing_workers(experiment.spec(), *seats));
      start_again_at_once(turn, experiment, fmt::format("begins again with {}", size.empty() ? "all of its workers" : size));
      experiment.regrows = true;
      settle(turn, experiment, false);
      break;
    }
  }
  const bool all_asked = is_time && model.growing.size() <= kGangsAtOnce;
  if (!all_asked) model.deadlines.insert({model.grow_next_ms, ExperimentId{}});
  if (turn.now < model.elastic_from_ms) model.deadlines.insert({model.elastic_from_ms, ExperimentId{}});
}

}  // namespace dtrain::daemon
