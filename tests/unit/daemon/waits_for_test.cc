#include "daemon/waits_for.h"

#include <doctest/doctest.h>

#include "daemon/describe.h"
#include "daemon/lifecycle.h"

namespace dtrain::daemon {
namespace {

const Policy kDefaultPolicy;
const ExperimentId kOne{1, 0};

Host host(const std::string& name) {
  Host host;
  host.id.hex = host.name = name;
  host.cpus = 1;
  host.memory_bytes = uint64_t{4} << 30;
  host.same_machine = true;
  host.address = name;
  host.connected = true;
  return host;
}

// A gang of two, a worker on each of two hosts.
struct Gang {
  Model model;
  HostId first, second;

  explicit Gang(OnFailure on_failure, bool builds = false) {
    for (const char* name : {"h1", "h2"}) step(model, HostConnected{host(name), {}}, kDefaultPolicy, 1);
    auto submission = std::make_shared<Submission>();
    submission->number = 1;
    RoleSpec role;
    role.role = Role::Worker;
    role.count = 2;
    role.resources.cpus = 1;
    role.on_failure = on_failure;
    submission->spec.roles = {role};
    if (on_failure == OnFailure::Restart) submission->spec.restart = {3, 0};
    if (builds) submission->spec.install = {"pip install x"};
    step(model, Submitted{submission}, kDefaultPolicy, 2);
    place_pending(model, kDefaultPolicy, 3);
    first = one().replicas.at(0).seat.host;
    second = one().replicas.at(1).seat.host;
    REQUIRE(first != second);
  }

  void run() {
    for (const Replica& replica : std::vector(one().replicas)) {
      step(model, LaunchPrepared{replica.seat.host, {kOne, 1}}, kDefaultPolicy, 4);
    }
    for (const Replica& replica : std::vector(one().replicas)) {
      step(model, ReplicaStarted{replica.id, 1, 42, 1, replica.seat.host}, kDefaultPolicy, 5);
    }
    REQUIRE(state_of(one()) == State::Running);
  }
  void happen(const Event& event, TimeMs now) { step(model, event, kDefaultPolicy, now); }
  const Experiment& one() const { return model.experiments.at(kOne); }
  std::string waits(TimeMs now) const { return waits_for(one(), model, now); }
  std::string reach() const { return out_of_reach(model, kOne); }
};

TEST_CASE("one that runs waits for nothing, or names the host that is away") {
  Gang gang(OnFailure::Fail);
  gang.run();
  CHECK(gang.waits(6).empty());
  CHECK(gang.reach().empty());
  gang.happen(HostDisconnected{gang.second}, 1'000);
  CHECK(gang.waits(41'000) ==
        gang.second.hex +
            " has been away for 40 s: 1.worker.2 may go on there, of which nothing is heard until "
            "its runner is back; what may not be restarted and has no max-away is not given up before, unless it is killed");
}

TEST_CASE("the next attempt waits for the host that may still run the last one") {
  Gang gang(OnFailure::Restart);
  gang.run();
  gang.happen(HostDisconnected{gang.second}, 1'000);
  gang.happen(Tick{}, 1'000 + kDefaultPolicy.local_grace_ms);
  REQUIRE(state_of(gang.one()) == State::Restarting);
  const std::string away = "waits for " + gang.second.hex +
                           ", which has been away for 60 s and may still run 1.worker.2";
  CHECK(gang.waits(1'000 + kDefaultPolicy.local_grace_ms).find(away) != std::string::npos);
  CHECK(gang.waits(1'000 + kDefaultPolicy.local_grace_ms)
            .find("waits for 1.worker.1 on " + gang.first.hex + " to end") != std::string::npos);
  gang.happen(ReplicaExited{gang.one().replicas[0].id, 1, Exit{}, gang.first}, 62'000);
  CHECK(gang.waits(62'000).find("waits for the last output of 1.worker.1 from " + gang.first.hex) !=
        std::string::npos);
  gang.happen(ReplicaReleased{gang.one().replicas[0].id, 1, "", gang.first}, 62'000);
  CHECK(gang.waits(1'000 + 300'000) ==
        "waits for " + gang.second.hex +
            ", which has been away for 5 min and may still run 1.worker.2");
  CHECK(gang.reach() ==
        "on " + gang.second.hex + ", which is away, its processes end when its runner is back");
}

TEST_CASE("a kill says what it can't reach, and afterwards what it waits for") {
  Gang gang(OnFailure::Fail);
  gang.run();
  gang.happen(HostDisconnected{gang.second}, 1'000);
  CHECK(gang.reach() ==
        "on " + gang.second.hex + ", which is away, its processes end when its runner is back");
  gang.happen(KillWanted{kOne, false}, 2'000);
  gang.happen(ReplicaExited{gang.one().replicas[0].id, 1, Exit{}, gang.first}, 3'000);
  gang.happen(ReplicaReleased{gang.one().replicas[0].id, 1, "", gang.first}, 3'000);
  REQUIRE(state_of(gang.one()) == State::Stopping);
  CHECK(gang.waits(3'000) == "waits for " + gang.second.hex +
                                 ", which has been away for 2 s and may still run 1.worker.2");
  gang.happen(Tick{}, 1'000 + kDefaultPolicy.local_grace_ms);
  CHECK(gang.one().over);
  CHECK(gang.waits(62'000).empty());
}

TEST_CASE("a lease bounds what is out of reach") {
  Gang gang(OnFailure::Restart);
  gang.run();
  for (Replica& replica : gang.model.experiments.at(kOne).replicas) replica.lease_ms = 600'000;
  gang.happen(HostDisconnected{gang.second}, 1'000);
  CHECK(gang.reach().ends_with("when its runner is back, and within 10 min at most"));
}

TEST_CASE("of a host whose key was revoked nobody says that it comes back") {
  Gang gang(OnFailure::Restart);
  gang.run();
  for (Replica& replica : gang.model.experiments.at(kOne).replicas) replica.lease_ms = 600'000;
  gang.happen(HostRevoked{gang.second}, 1'000);
  gang.happen(HostDisconnected{gang.second}, 1'000);
  CHECK(gang.waits(41'000) == "the key of " + gang.second.hex + " was revoked: 1.worker.2 counts as lost once its lease has run out");
  CHECK(gang.reach() == "on " + gang.second.hex + ", whose key was revoked, its processes end by themselves within 10 min at most");
}

TEST_CASE("one that builds says on which host what runs") {
  Gang gang(OnFailure::Fail, true);
  const auto why = [&] { return reason_of(gang.one(), gang.model, 5); };
  CHECK(why() == "its environment is looked for on " + gang.first.hex + ", " + gang.second.hex);
  const ReplicaId build{kOne, Role::Build, 2};
  const uint32_t attempt = gang.one().build_attempt;
  gang.happen(LaunchPrepared{gang.second, {kOne, attempt, true}}, 4);
  gang.happen(ReplicaStarted{build, attempt, 42, 1, gang.second}, 5);
  REQUIRE(state_of(gang.one()) == State::Building);
  CHECK(why() == "its environment is being built on " + gang.second.hex +
                     " (1.build.2); looked for on " + gang.first.hex);
}

}  // namespace
}  // namespace dtrain::daemon
