#include "daemon/preemption.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "daemon/placement_elastic.h"
#include "daemon/queue.h"
#include "daemon/supposition.h"

namespace dtrain::daemon {

namespace {

constexpr TimeMs kPreemptEveryMs = 1'000;
constexpr size_t kAskedAtOnce = 16;
// Of a pass: replicas of those that end, and where nothing helps all experiments that could give way.
constexpr size_t kLookedAtMost = 10'000, kQuestion = 100;
// So often it is tried whether it would do without some of them.
constexpr size_t kTriesMost = 64;

using Some = std::vector<const Experiment*>;

// Lowest priority first, of these the newest. Found as they are needed: mostly few of very many.
class WhoCould {
 public:
  WhoCould(const Model& model, const QueueOrder& order, const std::set<ExperimentId>& leaving)
      : model_(model), order_(order), leaving_(leaving), next_(model.preemptible.rbegin()) {}

  // The first so many; fewer where there are no more.
  const Some& first(size_t count) {
    for (; found_.size() < count && next_ != model_.preemptible.rend() && next_->behind > order_.behind; ++next_) {
      const Experiment& experiment = model_.experiments.at(next_->id);
      if (!leaving_.contains(next_->id) && can_be_stopped(model_, experiment)) found_.push_back(&experiment);
    }
    return found_;
  }

 private:
  const Model& model_;
  const QueueOrder& order_;
  const std::set<ExperimentId>& leaving_;
  std::set<QueueOrder>::const_reverse_iterator next_;
  Some found_;
};

// Whose places come free, and not for somebody ahead of it: those that are on their way back into the queue are in theirs.
Some who_leaves(const Model& model, const QueueOrder& order, const std::set<ExperimentId>& leaving) {
  Some found;
  const auto look_at = [&](const ExperimentId& id) {
    const Experiment& experiment = model.experiments.at(id);
    const bool comes_back_before = !experiment.outcome && !experiment.suspended && order_of(experiment) < order;
    if (!comes_back_before && can_be_stopped(model, experiment)) found.push_back(&experiment);
  };
  std::for_each(model.ending.begin(), model.ending.end(), look_at);
  std::for_each(leaving.begin(), leaving.end(), look_at);
  return found;
}

// Where one would go if some gave way, beside those that leave.
class Question {
 public:
  Question(FreeHosts& free, const Asking& asking, const Some& leaving, const std::vector<Seat>& promised)
      : free_(free), asking_(asking), least_(asking.spec), leaving_(leaving), promised_(promised) {}

  std::optional<std::vector<Seat>> seats(const Some& who, size_t count) const {
    Supposition supposed(free_);
    give(supposed, leaving_.begin(), leaving_.end());
    give(supposed, who.begin(), who.begin() + static_cast<std::ptrdiff_t>(count));
    return seats(supposed);
  }
  std::optional<std::vector<Seat>> seats(const Some& who) const { return seats(who, who.size()); }

  // What of the hosts of these seats, and of those that are promised, others may use; once all of these have ended.
  RoomByHost rooms_beside(const std::vector<Seat>& seats) const {
    Supposition supposed(free_);
    give(supposed, leaving_.begin(), leaving_.end());
    RoomByHost rooms = left_by_promises({});
    for (const auto& [host, room] : rooms_without(free_, seats)) {
      const auto [known, fresh] = rooms.try_emplace(host, room);
      if (fresh) continue;
      for (const Seat& seat : seats) {
        if (seat.host == host) known->second -= room_of(seat);
      }
    }
    return rooms;
  }

  // The first of them, as many as it takes; none where all of them are not enough.
  Some as_many_as_needed(WhoCould& all) const {
    size_t few = 1, many = 0;
    {
      Supposition supposed(free_);
      give(supposed, leaving_.begin(), leaving_.end());
      do {
        const Some& who = all.first(std::max<size_t>(2 * many, 1));
        if (many == who.size()) return {};
        give(supposed, who.begin() + static_cast<std::ptrdiff_t>(many), who.end());
        few = many + 1;
        many = who.size();
      } while (!seats(supposed));
    }
    Some who = all.first(many);
    while (few < many) {
      const size_t middle = (few + many) / 2;
      if (seats(who, middle)) {
        many = middle;
      } else {
        few = middle + 1;
      }
    }
    who.resize(many);
    return who;
  }

 private:
  static void give(Supposition& supposed, Some::const_iterator from, Some::const_iterator to) {
    for (; from != to; ++from) supposed.give_all(**from);
  }

  // `rooms`: of what is free as it is supposed.
  RoomByHost left_by_promises(RoomByHost rooms) const {
    for (const Seat& seat : promised_) {
      const auto [room, fresh] = rooms.try_emplace(seat.host);
      if (fresh) room->second = free_.find(seat.host)->room();
      room->second -= room_of(seat);
    }
    return rooms;
  }

  std::optional<std::vector<Seat>> seats(const Supposition& supposed) const {
    Choice choice = asking_.choice;
    RoomByHost rooms;
    if (choice.kept_free != nullptr) rooms = *choice.kept_free;
    for (const Seat& seat : rooms.empty() ? std::vector<Seat>() : supposed.given()) {
      if (const auto room = rooms.find(seat.host); room != rooms.end()) room->second += room_of(seat);
    }
    rooms = left_by_promises(std::move(rooms));
    choice.kept_free = rooms.empty() ? nullptr : &rooms;
    return fit(asking_.order.id, least_.spec(), free_, choice, asking_.stretch);
  }

  FreeHosts& free_;
  const Asking& asking_;
  const LeastGang least_;
  const Some& leaving_;
  const std::vector<Seat>& promised_;
};

// Those that hold anything on a host of these seats.
Some who_is_there(const Some& who, const std::vector<Seat>& seats) {
  std::set<HostId> hosts;
  for (const Seat& seat : seats) hosts.insert(seat.host);
  Some there;
  for (const Experiment* each : who) {
    const bool is_there = std::any_of(each->replicas.begin(), each->replicas.end(), [&](const Replica& replica) {
      return holds_seat(*each, replica) && hosts.contains(replica.seat.host);
    });
    if (is_there) there.push_back(each);
  }
  return there;
}

// Without those whom it would do without. Who would be the last to give way is spared first, and each before anybody who would be
// earlier is thought of; several at once where that goes well.
Some spared(Some who, const Question& question) {
  size_t some = 1;
  size_t end = who.size();
  for (size_t tries = 0; end > 0 && who.size() > 1 && tries < kTriesMost; ++tries) {
    some = std::min({some, end, who.size() - 1});
    Some others = who;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(end - some), others.begin() + static_cast<std::ptrdiff_t>(end));
    if (question.seats(others)) {
      who = std::move(others);
      end -= some;
      some *= 2;
    } else if (some == 1) {
      --end;
    } else {
      some = 1;
    }
  }
  return who;
}

std::optional<Way> find_way(const Model& model, const Question& question, const Asking& asking, const std::set<ExperimentId>& leaving) {
  WhoCould all(model, asking.order, leaving);
  Some who = question.as_many_as_needed(all);
  if (who.empty()) return std::nullopt;
  auto seats = question.seats(who);
  if (!seats) return std::nullopt;
  // Who looks for the tightest host may look elsewhere when the others stay.
  if (Some there = who_is_there(who, *seats); question.seats(there)) who = std::move(there);
  who = spared(std::move(who), question);
  seats = question.seats(who);
  if (!seats) return std::nullopt;
  Way way{{}, std::move(*seats)};
  for (const Experiment* each : who) way.who.push_back(each->id);
  std::sort(way.who.begin(), way.who.end());
  return way;
}

}  // namespace

bool may_give_way(const Experiment& experiment) {
  if (!experiment.spec().preemptible || experiment.over || experiment.outcome || experiment.suspended) return false;
  if (experiment.phase == Phase::None || experiment.phase == Phase::Ending) return false;
  // What has done its part would do it again.
  return std::none_of(experiment.replicas.begin(), experiment.replicas.end(),
                      [](const Replica& replica) { return !is_build(replica) && replica.end == State::Finished; });
}

bool is_giving_way(const Experiment& experiment) { return experiment.gave_way_to && !experiment.over && holds_any_seat(experiment); }

bool is_ending(const Experiment& experiment) {
  return !experiment.over && (experiment.outcome || experiment.phase == Phase::Ending) && holds_any_seat(experiment);
}

bool is_room_promised(const Model& model) {
  return std::any_of(model.giving_way.begin(), model.giving_way.end(), [&](const auto& entry) {
    const auto to = model.experiments.find(entry.first);
    if (to == model.experiments.end() || !is_queued(to->second)) return false;
    return std::any_of(entry.second.begin(), entry.second.end(),
                       [&](const ExperimentId& id) { return can_be_stopped(model, model.experiments.at(id)); });
  });
}

std::optional<Way> way_for(const Model& model, FreeHosts& free, const Asking& asking) {
  const std::set<ExperimentId> nobody;
  const std::vector<Seat> nothing;
  const Some gone = who_leaves(model, asking.order, nobody);
  const Question question(free, asking, gone, nothing);
  if (question.seats({})) return std::nullopt;   // it waits for those
  return find_way(model, question, asking, nobody);
}

std::vector<ExperimentId> who_would_give_way(const Model& model, const Spec& spec, const std::string& host, TimeMs now) {
  const ExperimentId id{UINT32_MAX, spec.is_set() ? 1u : 0u};
  const std::vector<Spec> shapes = shapes_of(spec);
  const Spec& one = shapes.empty() ? spec : shapes[shape_of(spec, id.member)];
  const QueueOrder order{100 - spec.priority, id};
  if (spec.suspend || model.preemptible.empty() || model.preemptible.rbegin()->behind <= order.behind) return {};
  FreeHosts free;
  for (const auto& [host_id, each] : model.free.all()) free.put(each);
  Choice choice{host, {}, nullptr};
  const double stretch = stretch_needed(id, LeastGang(one).spec(), emptied(free, obtainable(free, choice)), choice);
  if (stretch == 0) return {};
  choice.now = now;
  auto way = way_for(model, free, {order, one, choice, stretch});
  return way ? std::move(way->who) : std::vector<ExperimentId>();
}

std::string gave_way_text(const Model& model, const Experiment& experiment) {
  const ExperimentId& to = *experiment.gave_way_to;
  const auto found = model.experiments.find(to);
  const std::string priority =
      found == model.experiments.end() ? "" : fmt::format(" (priority {})", found->second.spec().priority);
  return fmt::format("{} way to {}{}", holds_any_seat(experiment) ? "gives" : "gave", to_string(to), priority);
}

std::string give_way_text(const std::vector<ExperimentId>& who) {
  constexpr size_t kNamedMost = 4;
  std::string text;
  const size_t named = who.size() > kNamedMost ? kNamedMost - 1 : who.size();
  for (size_t i = 0; i < named; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == who.size() ? " and " : ", ", to_string(who[i]));
  }
  if (named < who.size()) text += fmt::format(" and {} others", who.size() - named);
  return fmt::format("{} give{} way to it", text, who.size() == 1 ? "s" : "");
}

Preemption::Preemption(Model& model, TimeMs now) : model_(model), now_(now), is_time_(now >= model.preempt_next_ms) {
  if (!is_time_) return;
  asked_before_ = std::exchange(model_.preempt_asked, {});
  if (asked_before_ == QueueOrder()) model_.preempt_round_began = model_.changes;
}

bool Preemption::concerns(const Experiment& experiment) const {
  // What only shows others stops none of them. Who begins behind this one, and may give way, would do so at once.
  return model_.preemptible_live > 0 && !experiment.regrows && !experiment.is_shared();
}

std::optional<Claim> Preemption::ask(const Asking& asking) {
  const bool may_look = looked_at_ < kLookedAtMost;
  const Some gone = may_look ? who_leaves(model_, asking.order, leaving_) : Some();
  const Question question(model_.free, asking, gone, promised_);
  if (!gone.empty()) {
    looked_at_ += kQuestion;
    for (const Experiment* each : gone) looked_at_ += each->replicas.size();
    if (auto seats = question.seats({})) return promise(asking, std::move(*seats));
  }
  if (!may_have_others_give_way(asking)) return std::nullopt;
  if (gone.empty() && question.seats({})) return std::nullopt;   // an elastic one that waits for more
  auto way = find_way(model_, question, asking, leaving_);
  model_.preempt_next_ms = now_ + kPreemptEveryMs;
  ++asked_;
  if (!way) looked_at_ += model_.preemptible.size();
  if (is_full()) model_.preempt_asked = asking.order;
  if (!way) return std::nullopt;
  leaving_.insert(way->who.begin(), way->who.end());
  found_.push_back({asking.order.id, way->who});
  return promise(asking, std::move(way->seats));
}

bool Preemption::may_have_others_give_way(const Asking& asking) {
  if (model_.preemptible.empty() || model_.preemptible.rbegin()->behind <= asking.order.behind) return false;
  if (const auto giving = model_.giving_way.find(asking.order.id); giving != model_.giving_way.end()) {
    const auto ends = [&](const ExperimentId& id) { return can_be_stopped(model_, model_.experiments.at(id)); };
    if (std::any_of(giving->second.begin(), giving->second.end(), ends)) return false;
  }
  const Experiment& experiment = model_.experiments.at(asking.order.id);
  TimeMs again_ms = std::max(model_.hosts_awaited_until_ms, experiment.preempts_from_ms);
  if (now_ >= again_ms) {
    const bool its_turn = is_time_ && !is_full();
    if (its_turn && asking.order > asked_before_) return true;
    if (its_turn && model_.changes == model_.preempt_round_began) return false;   // it was asked in this round, and nothing is new
    again_ms = std::max(model_.preempt_next_ms, now_ + (is_full() ? kPreemptEveryMs : 1));
  }
  model_.deadlines.insert({again_ms, ExperimentId{}});
  return false;
}

bool Preemption::is_full() const { return asked_ >= kAskedAtOnce || looked_at_ >= kLookedAtMost; }

// On what there will be once those have ended that it counts on.
Claim Preemption::promise(const Asking& asking, std::vector<Seat> seats) {
  const Some gone = who_leaves(model_, asking.order, leaving_);
  Claim claim{.whose = asking.order, .others_may_use = Question(model_.free, asking, gone, promised_).rooms_beside(seats), .promised = true};
  std::move(seats.begin(), seats.end(), std::back_inserter(promised_));
  return claim;
}

}  // namespace dtrain::daemon
