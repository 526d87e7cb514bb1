// A model asked through step() as the daemon does, with experiments of one role.
#pragma once

#include <memory>
#include <string>

#include "daemon/lifecycle.h"
#include "daemon/queue.h"
#include "daemon/wait_reason.h"

namespace dtrain::daemon {

struct CoreScene {
  Model model;
  Policy policy;
  TimeMs now = 1'000;
  uint32_t number = 0;

  struct Wanted {
    int replicas = 1;
    double cpus = 1;
    int gpus = 0;
    int priority = 50;
    int64_t max_duration_ms = 0;
    int restarts = 0;
    int least = 0;   // of an elastic one
    int64_t grow_after_ms = 0;
    std::string host = {};
    bool preemptible = false;
    std::string user = {};
  };

  Effects happen(const Event& event) { return step(model, event, policy, now); }
  void pass() {
    do place_pending(model, policy, now);
    while (model.place_wanted);
  }

  void host(const std::string& name, double cpus) {
    Host host;
    host.id.hex = host.name = host.address = name;
    host.cpus = cpus;
    host.memory_bytes = uint64_t{64} << 30;
    host.same_machine = true;
    happen(HostConnected{host, {}});
  }
  ExperimentId submit(const Wanted& wanted) {
    auto submission = std::make_shared<Submission>();
    submission->number = ++number;
    RoleSpec role;
    role.role = wanted.replicas == 1 ? Role::Train : Role::Worker;
    role.count = wanted.replicas;
    role.resources = {wanted.cpus, uint64_t{1} << 30, wanted.gpus};
    role.on_failure = wanted.restarts > 0 ? OnFailure::Restart : OnFailure::Fail;
    submission->spec.roles = {role};
    submission->spec.priority = wanted.priority;
    submission->spec.preemptible = wanted.preemptible;
    submission->spec.max_duration_ms = wanted.max_duration_ms;
    submission->spec.restart.limit = wanted.restarts;
    submission->host = wanted.host;
    submission->user = wanted.user;
    if (wanted.least > 0) submission->spec.elastic = Elastic{wanted.least, wanted.grow_after_ms};
    happen(Submitted{submission});
    return {number, 0};
  }
  // All of it runs.
  void start(const ExperimentId& id) {
    const Experiment& experiment = model.experiments.at(id);
    for (const Replica& replica : experiment.replicas) happen(LaunchPrepared{replica.seat.host, {id, experiment.attempt}});
    for (const Replica& replica : experiment.replicas) {
      happen(ReplicaStarted{replica.id, experiment.attempt, 17, 1, replica.seat.host});
    }
  }
  size_t replicas_of(const ExperimentId& id) const { return model.experiments.at(id).replicas.size(); }
  State state(const ExperimentId& id) const { return state_of(model.experiments.at(id)); }
  // It ends well, and nothing of it is left.
  void finish(const ExperimentId& id) {
    exit_all(id, {});
    release_all(id);
  }
  void exit_all(const ExperimentId& id, const Exit& exit) {
    const std::vector<Replica> replicas = model.experiments.at(id).replicas;
    for (const Replica& replica : replicas) happen(ReplicaExited{replica.id, replica.attempt, exit, replica.seat.host});
  }
  // So much later, with the ticks that are due on the way, and their passes. How many there were.
  int pass_time(TimeMs by_ms) {
    const TimeMs end = now + by_ms;
    int ticks = 0;
    for (pass(); !model.deadlines.empty() && model.deadlines.begin()->first <= end; pass()) {
      now = std::max(now, model.deadlines.begin()->first);
      happen(Tick{});
      ++ticks;
    }
    now = end;
    return ticks;
  }
  void release_all(const ExperimentId& id) {
    const std::vector<Replica> replicas = model.experiments.at(id).replicas;
    for (const Replica& replica : replicas) happen(ReplicaReleased{replica.id, replica.attempt, "", replica.seat.host});
  }
  bool is_placed(const ExperimentId& id) const { return model.experiments.at(id).phase != Phase::None; }
  HostId host_of(const ExperimentId& id) const {
    const Experiment& experiment = model.experiments.at(id);
    return experiment.phase == Phase::None ? HostId() : experiment.replicas.at(0).seat.host;
  }
  std::string reason(const ExperimentId& id) const { return wait_reason(model, id, now); }
};

}  // namespace dtrain::daemon
