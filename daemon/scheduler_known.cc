// What is known of submissions, live and over: as it is committed, from memory or from the store.
#include "daemon/record.h"
#include "daemon/scheduler.h"
#include "schema/clock.h"

namespace dtrain::daemon {

// A set stays in memory until all of it is over, and members that are may be very many: what only
// their details need is read from the store when somebody asks.
void Scheduler::lighten(Experiment& experiment) {
  // Not "= {}", which keeps the room they had.
  if (experiment.over && experiment.id.member != 0) experiment.replicas = std::vector<Replica>();
}

bool Scheduler::is_over(const ExperimentId& id) const {
  const auto none_of = [&id](const std::set<ExperimentId>& ids) {
    if (id.member != 0) return !ids.contains(id);
    const auto next = ids.lower_bound(id);
    return next == ids.end() || next->number != id.number;
  };
  // What is decided but not committed has not happened yet.
  return none_of(model_.live) && none_of(waiting_rows_);
}

size_t Scheduler::live_count() const {
  return model_.live.size() +
         static_cast<size_t>(std::count_if(
             waiting_rows_.begin(), waiting_rows_.end(), [this](const ExperimentId& id) {
               return !model_.live.contains(id) && model_.experiments.contains(id);
             }));
}

std::set<uint32_t> Scheduler::live_numbers() const {
  std::set<uint32_t> numbers;
  const auto& live = model_.live;
  for (auto it = live.begin(); it != live.end(); it = live.lower_bound({it->number + 1, 0})) {
    numbers.insert(it->number);
  }
  for (const ExperimentId& id : waiting_rows_) {
    if (model_.experiments.contains(id)) numbers.insert(id.number);
  }
  return numbers;
}

// As the store has it; one that it has nothing of is as it was submitted.
Result<Experiment> Scheduler::committed(const ExperimentId& id,
                                        std::shared_ptr<const Submission> submission) {
  TRY(const auto record, store_.experiment(id));
  if (record) return from_record(*record, id, std::move(submission), boottime_ms(), boot_id_);
  return first_state(submission, id.member);
}

Result<Scheduler::Known> Scheduler::find(const ExperimentId& id) {
  if (const auto found = unreadable_.find(id.number); found != unreadable_.end()) return found->second;
  Known known;
  const auto add = [&known](const Experiment& experiment) {
    if (experiment.is_shared()) {
      known.shared = &experiment;
    } else {
      known.experiments.push_back(&experiment);
    }
  };
  const auto read = [&known, &add](Experiment&& experiment) {
    known.read.push_back(std::move(experiment));
    add(known.read.back());
  };
  const bool all = id.member == 0;
  auto it = model_.experiments.lower_bound(id);
  const auto end = model_.experiments.lower_bound({id.number + 1, 0});
  if (it != end) known.submission = it->second.submission;
  for (; it != end && (all || it->first == id); ++it) {
    const Experiment& experiment = it->second;
    const bool lightened = !all && experiment.over;
    if (lightened || waiting_rows_.contains(it->first)) {
      TRY(auto stored, committed(it->first, known.submission));
      stored.held = experiment.held;
      stored.awaits = experiment.awaits;
      read(std::move(stored));
    } else {
      add(experiment);
    }
  }
  if (known.submission) return known;
  TRY(known.submission, store_.submission(id.number));
  if (!all) {
    if (known.submission->spec.is_set() && id.member <= known.submission->spec.member_count()) {
      TRY(auto stored, committed(id, known.submission));
      read(std::move(stored));
    }
    return known;
  }
  TRY(const auto stored, store_.experiments(id.number));
  for (const auto& row : stored) {
    TRY(auto experiment,
        from_record(row.record, row.id, known.submission, boottime_ms(), boot_id_));
    read(std::move(experiment));
  }
  return known;
}

}  // namespace dtrain::daemon
