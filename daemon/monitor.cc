#include "daemon/monitor.h"

#include <chrono>
#include <utility>

#include "daemon/runner_api.h"
#include "daemon/summary.h"
#include "schema/clock.h"

namespace dtrain::daemon {

namespace {

constexpr auto kAllFor = std::chrono::minutes(2);

}  // namespace

// One person in front of `dtrain monitor`. Owner: gRPC.
class Monitor::Viewer final : public WriteStream<pb::MonitorSample> {
 public:
  Viewer(boost::asio::io_context& loop, grpc::CallbackServerContext& call, Monitor& monitor, std::string id)
      : WriteStream(loop, &call), monitor_(monitor), id_(std::move(id)) {
    on_writable = [this] { begin(); };
    on_closed = [this] { monitor_.remove(this); };
  }

  const IdPattern& pattern() const { return pattern_; }

  // Skips a beat when the last sample is still being written.
  void show() {
    if (!is_writable()) return;
    auto sample = monitor_.sample(pattern_);
    if (!sample.ok()) return finish(to_grpc(sample.error()));
    write(std::move(*sample));
    if (monitor_.scheduler_.is_over(pattern_.experiment)) finish(grpc::Status::OK);
  }

  bool waits_for_first() const { return waits_for_first_; }
  void first_came() { waits_for_first_ = false; }

 private:
  void begin() {
    on_writable = nullptr;
    auto pattern = parse_id_pattern(id_);
    if (!pattern.ok()) return finish(to_grpc(pattern.error()));
    pattern_ = *pattern;
    const auto known = monitor_.scheduler_.find(pattern_.experiment);
    if (!known.ok()) return finish(to_grpc(known.error()));
    if (const auto status = check_exists(*known, pattern_); !status.ok()) {
      return finish(to_grpc(status.error()));
    }
    monitor_.add(this);
    if (monitor_.scheduler_.is_over(pattern_.experiment)) show();
  }

  Monitor& monitor_;
  const std::string id_;
  IdPattern pattern_;
  bool waits_for_first_ = true;
};

Monitor::Monitor(boost::asio::io_context& loop, Scheduler& scheduler, RunnerApi& runners)
    : loop_(loop), scheduler_(scheduler), runners_(runners), second_(loop) {}

std::shared_ptr<WriteStream<pb::MonitorSample>> Monitor::start(grpc::CallbackServerContext& call,
                                                               const pb::MonitorRequest& request) {
  auto viewer = std::make_shared<Viewer>(loop_, call, *this, request.id());
  viewer->start();
  return viewer;
}

void Monitor::add(Viewer* viewer) {
  viewers_.insert(viewer);
  tell_hosts();
  begin_to_tick();
}

void Monitor::begin_to_tick() {
  if (std::exchange(ticks_, true)) return;
  second_.expires_after(std::chrono::seconds(1));
  second_.async_wait([this](boost::system::error_code error) {
    if (!error) tick();
  });
}

bool Monitor::all_are_watched() const { return std::chrono::steady_clock::now() < all_until_; }

void Monitor::remove(Viewer* viewer) {
  if (viewers_.erase(viewer) == 0) return;
  tell_hosts();
}

void Monitor::tell_hosts() {
  std::set<ExperimentId> watched;
  if (all_are_watched()) {
    for (const auto& [host, seated] : scheduler_.model().seated) watched.insert(seated.begin(), seated.end());
  }
  for (const Viewer* viewer : viewers_) {
    for (auto it = scheduler_.model().experiments.lower_bound({viewer->pattern().experiment.number, 0});
         it != scheduler_.model().experiments.end() &&
         it->first.number == viewer->pattern().experiment.number;
         ++it) {
      if (viewer->pattern().matches(it->first) && !it->second.replicas.empty()) {
        watched.insert(it->first);
      }
    }
  }
  runners_.monitor(watched);
}

void Monitor::tick() {
  tell_hosts();   // members of a set start and end meanwhile
  const std::set<Viewer*> viewers = viewers_;
  for (Viewer* viewer : viewers) viewer->show();
  if (viewers_.empty() && !all_are_watched()) {
    ticks_ = false;
    latest_.clear();
    return;
  }
  if (latest_.size() > most_kept_) forget_gone();
  second_.expires_at(second_.expiry() + std::chrono::seconds(1));
  second_.async_wait([this](boost::system::error_code error) {
    if (!error) tick();
  });
}

void Monitor::on_usage(const pb::UsageReport& report) {
  for (const auto& usage : report.replicas()) latest_[usage.replica()] = usage;
  const std::set<Viewer*> viewers = viewers_;
  for (Viewer* viewer : viewers) {
    if (!viewer->waits_for_first()) continue;
    for (const auto& usage : report.replicas()) {
      const auto replica = parse_replica_id(usage.replica());
      if (!replica.ok() || !viewer->pattern().matches(*replica)) continue;
      viewer->first_came();
      viewer->show();
      break;
    }
  }
}

// Of what has ended meanwhile.
void Monitor::forget_gone() {
  const Model& model = scheduler_.model();
  std::erase_if(latest_, [&](const auto& entry) {
    const auto id = parse_replica_id(entry.first);
    return !id.ok() || !model.live.contains(id->experiment);
  });
  most_kept_ = 2 * latest_.size() + kKeptAtLeast;
}

std::vector<pb::ReplicaUsage> Monitor::all_usage() {
  all_until_ = std::chrono::steady_clock::now() + kAllFor;
  tell_hosts();
  begin_to_tick();
  std::vector<pb::ReplicaUsage> all;
  std::set<ExperimentId> placed;
  for (const auto& [host, seated] : scheduler_.model().seated) placed.insert(seated.begin(), seated.end());
  for (const ExperimentId& id : placed) {
    const Experiment& experiment = scheduler_.model().experiments.at(id);
    for (const Replica& replica : experiment.replicas) {
      if (state_of(experiment, replica) != State::Running) continue;
      const auto latest = latest_.find(to_string(replica.id));
      if (latest == latest_.end()) continue;
      all.push_back(latest->second);
      fill_in(all.back(), replica);
    }
  }
  return all;
}

void Monitor::fill_in(pb::ReplicaUsage& usage, const Replica& replica) const {
  usage.set_replica(to_string(replica.id));
  usage.set_requested_cpus(replica.seat.cpus);
  usage.set_requested_memory_bytes(replica.seat.memory_bytes);
  const auto host = scheduler_.model().hosts.find(replica.seat.host);
  if (host == scheduler_.model().hosts.end()) return;
  usage.set_host_name(host->second.name);
  usage.set_host_cpus(host->second.cpus);
  usage.set_host_memory_bytes(host->second.memory_bytes);
}

Result<pb::MonitorSample> Monitor::sample(const IdPattern& pattern) {
  TRY(const auto known, scheduler_.find(pattern.experiment));
  pb::MonitorSample sample;
  sample.set_project(known.submission->spec.project);
  const auto summary = summary_of(known, pattern.experiment, scheduler_.model(), boottime_ms());
  sample.set_state(summary.state());
  sample.set_reason(summary.reason());
  for (const Experiment* experiment : members_of(known, pattern.experiment)) {
    for (const Replica& replica : experiment->replicas) {
      if (!pattern.matches(replica.id) || !is_shown(replica)) continue;
      pb::ReplicaUsage& usage = *sample.add_replicas();
      const State state = state_of(*experiment, replica);
      const auto latest = latest_.find(to_string(replica.id));
      if (state == State::Running && latest != latest_.end()) {
        usage = latest->second;
        usage.set_live(true);
      }
      usage.set_state(std::string(to_string(state)));
      fill_in(usage, replica);
    }
  }
  return sample;
}

}  // namespace dtrain::daemon
