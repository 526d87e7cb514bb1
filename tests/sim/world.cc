#include "sim/world.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/placement.h"
#include "daemon/queue.h"

namespace dtrain::sim {

using namespace daemon;

namespace {

constexpr size_t kLiveMax = 10;
constexpr size_t kHeardMax = 64;
constexpr size_t kTraceMax = 400;

Host make_host(int n) {
  Host host;
  host.id.hex = fmt::format("{:032x}", n + 1);
  host.name = fmt::format("n{}", n);
  host.address = fmt::format("10.0.0.{}", n + 1);
  host.same_machine = n == 0;
  host.cpus = n == 0 ? 4 : 8;
  host.memory_bytes = uint64_t{16} << 30;
  host.port_first = 20'000;
  host.port_last = 20'199;
  for (int gpu = 0; gpu < (n == 0 ? 2 : 4); ++gpu) host.gpus.push_back({gpu, "fake", ""});
  return host;
}

Policy short_policy() {
  Policy policy;
  policy.lease_ms = 60'000;
  policy.lease_margin_ms = 5'000;
  policy.local_grace_ms = 30'000;
  return policy;
}

// What the database keeps of an experiment.
Experiment durable(Experiment experiment) {
  experiment.held = false;
  experiment.wait_reason.clear();
  for (Replica& replica : experiment.replicas) replica.stop_sent = false;
  return experiment;
}

}  // namespace

World::World(uint64_t seed)
    : random_(seed), policy_(short_policy()), model_(std::make_unique<Model>()) {
  const int count = 2 + static_cast<int>(below(3));
  for (int n = 0; n < count; ++n) {
    FakeHost host;
    host.inventory = make_host(n);
    hosts_.push_back(std::move(host));
  }
}

void World::note(std::string line) {
  trace_.push_back(fmt::format("{:6} t={:<9} {}", steps_, now_, line));
  if (trace_.size() > kTraceMax) trace_.pop_front();
}

// ---- the daemon around the pure core

void World::happen(const Event& event) {
  if (!std::holds_alternative<HostConnected>(event) && !std::holds_alternative<Submitted>(event) &&
      !std::holds_alternative<Tick>(event)) {
    heard_.push_back(event);
    if (heard_.size() > kHeardMax) heard_.pop_front();
  }
  commit_and_send(daemon::step(*model_, event, policy_, now_));
}

void World::pass() {
  if (model_->place_wanted) commit_and_send(place_pending(*model_, policy_, now_));
}

void World::commit_and_send(Effects effects) {
  if (!calm_ && chance(1) && chance(20)) {
    note("the daemon dies before its commit");
    restart_daemon();
    return;
  }
  std::set<ExperimentId> unique(effects.persist.begin(), effects.persist.end());
  require(unique.size() == effects.persist.size(), "persist names a row once");
  for (const ExperimentId& id : effects.persist) {
    rows_[id] = durable(model_->experiments.at(id));
  }
  for (const StateChange& change : effects.notify) check_shown(change);
  if (!calm_ && chance(1) && chance(20)) {
    note("the daemon dies after its commit, before it sends");
    restart_daemon();
    return;
  }
  for (const Send& send : effects.send) {
    check_sendable(send);
    deliver(send);
  }
}

void World::deliver(const Send& send) {
  const HostId& id = std::visit([](const auto& any) -> const HostId& { return any.host; }, send);
  for (FakeHost& host : hosts_) {
    if (host.inventory.id != id || !host.connected || !host.daemon_sees) continue;
    note(fmt::format("to {}: message {}", host.inventory.name, send.index()) + std::visit([](const auto& m) {
           std::string text = " of " + to_string(m.experiment);
           if constexpr (requires { m.attempt; }) text += fmt::format("@{}", m.attempt);
           return text;
         }, send));
    if (const auto* launch = std::get_if<SendLaunch>(&send)) {
      LaunchMessage message{launch->experiment, launch->attempt, {}};
      for (const Replica& replica : model_->experiments.at(launch->experiment).replicas) {
        const auto& named = launch->replicas;
        if (std::find(named.begin(), named.end(), replica.id) == named.end()) continue;
        message.replicas.emplace_back(replica.seat, replica.lease_ms);
      }
      host.down.emplace_back(std::move(message));
    } else if (const auto* start = std::get_if<SendStart>(&send)) {
      host.down.emplace_back(*start);
    } else if (const auto* stop = std::get_if<SendStop>(&send)) {
      host.down.emplace_back(*stop);
    } else {
      host.down.emplace_back(std::get<SendForget>(send));
    }
  }
}

void World::from_runner(FakeHost& host) {
  const FromRunner message = std::move(host.up.front());
  host.up.pop_front();
  if (const auto* hello = std::get_if<HelloMessage>(&message)) {
    note(fmt::format("{} says hello with {} held", host.inventory.name, hello->event.held.size()));
    host.daemon_sees = true;
    host.down.emplace_back(WelcomeMessage{hello->sent_ms});
    happen(hello->event);
  } else if (const auto* renew = std::get_if<RenewMessage>(&message)) {
    happen(HostContact{host.inventory.id});
    if (host.daemon_sees) host.down.emplace_back(RenewedMessage{renew->sent_ms});
  } else {
    const Event& event = std::get<Event>(message);
    note(fmt::format("{} reports (event {})", host.inventory.name, event.index()));
    happen(event);
  }
}

void World::restart_daemon() {
  for (FakeHost& host : hosts_) host.break_stream();
  heard_.clear();   // said to the daemon that died; what matters is said again after Hello
  model_ = std::make_unique<Model>();
  for (const auto& submission : submissions_) {
    const auto members = static_cast<uint32_t>(submission->spec.is_set() ? submission->spec.member_count() : 0);
    for (uint32_t member = members > 0 ? 1 : 0; member <= members; ++member) {
      Experiment experiment;
      experiment.id = {submission->number, member};
      experiment.submission = submission;
      model_->experiments.emplace(experiment.id, std::move(experiment));
    }
  }
  for (const auto& [id, row] : rows_) model_->experiments.insert_or_assign(id, row);
  rebuild(*model_, now_);
}

void World::tick_if_due() {
  if (model_->deadlines.empty() || model_->deadlines.begin()->first > now_) return;
  note("tick");
  happen(Tick{});
}

// ---- what may happen

Spec World::random_spec() {
  Spec spec;
  spec.project = "sim";
  spec.framework = chance(60) ? Framework::Tensorflow : Framework::Command;
  const auto resources = [&](int gpus) {
    Resources each;
    each.cpus = 0.5 + static_cast<double>(below(4)) * 0.5;
    each.memory_bytes = (uint64_t{1} + below(4)) << 30;
    each.gpus = gpus;
    return each;
  };
  const auto rule = [&](bool decides) {
    if (chance(50)) return OnFailure::Fail;
    return chance(60) || decides ? OnFailure::Restart : OnFailure::Ignore;
  };
  if (chance(40)) {
    spec.roles.push_back({Role::Train, 1, resources(static_cast<int>(below(3))), {"x"}, rule(true)});
  } else {
    spec.roles.push_back({Role::Master, 1, resources(static_cast<int>(below(2))), {"x"}, rule(true)});
    const int workers = 1 + static_cast<int>(below(4));
    spec.roles.push_back({Role::Worker, workers, resources(static_cast<int>(below(2))), {"x"}, rule(false)});
    if (chance(60)) spec.roles.push_back({Role::Ps, 1 + static_cast<int>(below(2)), resources(0), {"x"}, rule(false)});
  }
  spec.restart.limit = static_cast<int>(below(4));
  spec.restart.backoff_ms = chance(30) ? 0 : 2'000;
  spec.completion = chance(30) ? Completion::AllWorkers : Completion::Decider;
  spec.finish_grace_ms = chance(30) ? 0 : 10'000;
  spec.priority = static_cast<int>(below(101));
  if (chance(30)) spec.max_duration_ms = 60'000 + static_cast<int64_t>(below(10)) * 60'000;
  if (chance(25)) {
    spec.parameters.push_back({"p", {"1", "2", "3"}});
    spec.concurrency = static_cast<int>(below(3));
  }
  return spec;
}

void World::submit() {
  if (model_->live.size() >= kLiveMax) return;
  auto submission = std::make_shared<Submission>();
  submission->number = static_cast<uint32_t>(ended_.empty() && submissions_.empty() ? 1 : 0);
  for (const auto& known : submissions_) submission->number = std::max(submission->number, known->number + 1);
  for (const auto& [id, outcome] : ended_) submission->number = std::max(submission->number, id.number + 1);
  submission->spec = random_spec();
  if (chance(10)) submission->host = hosts_[below(hosts_.size())].inventory.name;
  submissions_.push_back(submission);
  note(fmt::format("submit {}", submission->number));
  happen(Submitted{submission});
}

void World::kill() {
  if (model_->live.empty()) return;
  auto chosen = model_->live.begin();
  std::advance(chosen, static_cast<long>(below(model_->live.size())));
  const ExperimentId id = chance(30) ? chosen->set() : *chosen;
  note("kill " + to_string(id));
  happen(KillWanted{id, chance(30)});
}

void World::pass_time(TimeMs by_ms) {
  now_ += by_ms;
  for (FakeHost& host : hosts_) host.enforce_leases(now_);
}

void World::fault(FakeHost& host) {
  const size_t kind = below(100);
  if (kind < 40) {
    if (host.connected) note(host.inventory.name + " loses its stream");
    host.break_stream();
  } else if (kind < 75) {
    if (host.runner_up) note(host.inventory.name + "'s runner crashes");
    host.crash_runner();
  } else if (kind < 83) {
    note(host.inventory.name + " reboots");
    host.reboot();
  } else if (kind < 90) {
    note("the daemon is restarted");
    restart_daemon();
  }
}

void World::host_moves(FakeHost& host) {
  const size_t kind = below(100);
  if (!host.runner_up) {
    if (calm_ || kind < 10) host.runner_up = true;
  } else if (!host.connected) {
    if (calm_ || kind < 20) host.dial(now_);
  } else if (kind < 30 && !host.down.empty()) {
    host.receive(now_, random_);
  } else if (kind < 60 && !host.up.empty()) {
    from_runner(host);
  } else if (kind < 65) {
    host.up.emplace_back(RenewMessage{now_});
  }
  // Looked up only now: a message may have restarted the daemon.
  const auto known = model_->hosts.find(host.inventory.id);
  if (known != model_->hosts.end() && known->second.connected && !host.daemon_sees && chance(20)) {
    note("the daemon sees that " + host.inventory.name + " is gone");
    happen(HostDisconnected{host.inventory.id});
  }
  if (chance(calm_ ? 60 : 20)) host.act(now_, random_, calm_);
}

// An attempt that is no more may say what it likes.
void World::replay_stale() {
  if (heard_.empty()) return;
  const Event event = heard_[below(heard_.size())];
  std::optional<HeldReplicaFact> about;
  if (const auto* exited = std::get_if<ReplicaExited>(&event)) about = {exited->replica, exited->attempt};
  if (const auto* started = std::get_if<ReplicaStarted>(&event)) about = {started->replica, started->attempt};
  if (!about) return;
  const auto found = model_->experiments.find(about->replica.experiment);
  if (found == model_->experiments.end()) return;
  Experiment& experiment = found->second;
  for (const Replica& replica : experiment.replicas) {
    if (replica.id == about->replica && replica.attempt == about->attempt && !experiment.over) return;
  }
  const Experiment before = experiment;
  Effects effects = daemon::step(*model_, event, policy_, now_);
  require(effects.notify.empty() && effects.send.empty(), "a stale attempt has no effect");
  require(before.outcome.has_value() == experiment.outcome.has_value() &&
              before.phase == experiment.phase && before.attempt == experiment.attempt,
          "a stale attempt changes nothing");
  commit_and_send(std::move(effects));
}

void World::step() {
  ++steps_;
  const size_t kind = below(1000);
  if (kind < 15) submit();
  else if (kind < 18) kill();
  else if (kind < 20) pass_time(static_cast<TimeMs>(20'000 + below(80'000)));
  else if (kind < 80) pass_time(static_cast<TimeMs>(below(3'000)));
  else if (kind < 92) fault(hosts_[below(hosts_.size())]);
  else if (kind < 110) replay_stale();
  else if (kind < 250) tick_if_due();
  else if (kind < 400) pass();
  else host_moves(hosts_[below(hosts_.size())]);
  if (steps_ % 64 == 0) {
    // As the scheduler does: what is over leaves memory.
    std::erase_if(submissions_, [&](const auto& submission) {
      const ExperimentId first{submission->number, 0};
      const auto live = model_->live.lower_bound(first);
      if (live != model_->live.end() && live->number == submission->number) return false;
      const auto of_it = [&](const auto& entry) { return entry.first.number == submission->number; };
      std::erase_if(model_->experiments, of_it);
      std::erase_if(rows_, of_it);
      return true;
    });
  }
  check_everything();
}

// What no host can ever take is refused at submit when the hosts are known; here they may not have been.
void World::kill_impossible() {
  for (const ExperimentId& id : std::set<ExperimentId>(model_->live)) {
    const Experiment& experiment = model_->experiments.at(id);
    if (!is_queued(experiment)) continue;
    const Choice choice{experiment.submission->host, experiment.excluded_hosts, nullptr};
    const Placement placement = place(id, experiment.spec(), model_->free, choice);
    if (std::holds_alternative<Never>(placement)) happen(KillWanted{id, false});
  }
}

void World::quiesce() {
  calm_ = true;
  note("calm");
  for (int round = 0; round < 20'000; ++round) {
    ++steps_;
    for (FakeHost& host : hosts_) host_moves(host);
    if (round % 4 == 0) pass_time(500);
    tick_if_due();
    pass();
    check_everything();
    if (round % 1'000 == 999) kill_impossible();
    const bool empty = std::all_of(hosts_.begin(), hosts_.end(), [](const FakeHost& host) {
      return host.replicas.empty() && host.down.empty();
    });
    if (model_->live.empty() && empty) return;
  }
  std::string left;
  for (const ExperimentId& id : model_->live) {
    const Experiment& experiment = model_->experiments.at(id);
    left += fmt::format(" {} {} ({})", to_string(id), to_string(state_of(experiment)),
                        wait_reason(*model_, id, now_));
    for (const Replica& replica : experiment.replicas) {
      left += fmt::format(" [{} @{} progress {} lost {}]", to_string(replica.id), replica.attempt,
                          static_cast<int>(replica.progress), replica.lost);
    }
  }
  require(false, "everything comes to its end; left:" + left);
}

}  // namespace dtrain::sim
