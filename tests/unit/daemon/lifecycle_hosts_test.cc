#include <doctest/doctest.h>

#include "tests/unit/daemon/core_scene.h"

namespace dtrain::daemon {

namespace {

// A gang of two, one on each of two hosts of other machines.
struct SpreadGang : CoreScene {
  ExperimentId id;

  explicit SpreadGang(int restarts) {
    for (const char* name : {"n1", "n2"}) {
      Host host;
      host.id.hex = host.name = host.address = name;
      host.cpus = 2;
      host.memory_bytes = uint64_t{8} << 30;
      happen(HostConnected{host, {}});
    }
    id = submit({.replicas = 2, .cpus = 2, .restarts = restarts});
    pass();
    start(id);
  }
  const Replica& replica(size_t at) const { return model.experiments.at(id).replicas.at(at); }
};

}  // namespace

TEST_CASE("hosts that are lost at the same time are all lost") {
  SpreadGang scene(1);
  REQUIRE(scene.replica(0).seat.host != scene.replica(1).seat.host);
  for (const char* name : {"n1", "n2"}) scene.happen(HostDisconnected{{name}});
  scene.happen(KillWanted{scene.id, true});
  // Leases, graces and all.
  scene.now += 3'600'000;
  scene.happen(Tick{});
  CHECK(scene.replica(0).lost);
  CHECK(scene.replica(1).lost);
  CHECK(scene.model.experiments.at(scene.id).over);
}

TEST_CASE("that a host can't come back ends what waited for it, however late that is known") {
  SpreadGang scene(0);
  scene.happen(HostDisconnected{{"n2"}});
  scene.pass_time(3'600'000);
  REQUIRE(scene.state(scene.id) == State::Running);
  scene.happen(HostRevoked{{"n2"}});
  scene.pass_time(1);
  CHECK(scene.state(scene.id) == State::Stopping);
  CHECK(scene.replica(0).lost != scene.replica(1).lost);
}

TEST_CASE("starts that fail for ever are shown ever more rarely, and one that succeeds whole") {
  SpreadGang scene(0);
  std::vector<StateChange> shown;
  const auto happen = [&](const Event& event) {
    const Effects effects = scene.happen(event);
    shown.insert(shown.end(), effects.notify.begin(), effects.notify.end());
  };
  const auto place = [&] {
    scene.now += 70'000;
    happen(Tick{});
    do {
      const Effects effects = place_pending(scene.model, scene.policy, scene.now);
      shown.insert(shown.end(), effects.notify.begin(), effects.notify.end());
    } while (scene.model.place_wanted);
  };
  scene.exit_all(scene.id, {});   // its place is another's
  scene.release_all(scene.id);
  scene.id = scene.submit({.replicas = 2, .cpus = 2});
  // One of them begins each time, and the other can't.
  for (int failed = 0; failed < 500; ++failed) {
    while (!scene.is_placed(scene.id)) place();
    const uint32_t attempt = scene.model.experiments.at(scene.id).attempt;
    for (const size_t at : {0, 1}) happen(LaunchPrepared{scene.replica(at).seat.host, {scene.id, attempt}});
    happen(ReplicaStarted{scene.replica(0).id, attempt, 17, 1, scene.replica(0).seat.host});
    Exit exit;
    exit.lost_keeper = true;
    happen(ReplicaExited{scene.replica(1).id, attempt, exit, scene.replica(1).seat.host});
    happen(ReplicaExited{scene.replica(0).id, attempt, {}, scene.replica(0).seat.host});
    for (const size_t at : {0, 1}) happen(ReplicaReleased{scene.replica(at).id, attempt, "", scene.replica(at).seat.host});
  }
  REQUIRE(scene.model.experiments.at(scene.id).start_failures == 500);
  CHECK(shown.size() < 150);
  CHECK(scene.reason(scene.id).find("500 ") != std::string::npos);
  shown.clear();
  while (!scene.is_placed(scene.id)) place();
  const uint32_t attempt = scene.model.experiments.at(scene.id).attempt;
  for (const size_t at : {0, 1}) happen(LaunchPrepared{scene.replica(at).seat.host, {scene.id, attempt}});
  for (const size_t at : {0, 1}) happen(ReplicaStarted{scene.replica(at).id, attempt, 17, 1, scene.replica(at).seat.host});
  const auto count = [&](State state) { return std::ranges::count_if(shown, [&](const StateChange& change) { return change.state == state; }); };
  CHECK(count(State::Starting) == 3);
  CHECK(count(State::Running) == 3);
}

TEST_CASE("hosts that leave at the same time end all that is on them") {
  SpreadGang scene(0);
  scene.happen(HostLeaves{{"n1"}, "lent no longer"});
  CHECK(scene.model.experiments.at(scene.id).outcome);
  SpreadGang again(1);
  for (const char* name : {"n1", "n2"}) {
    Host host = again.model.hosts.at({name});
    host.lasts_ms = 3'600'000;
    host.ends_ms = again.now + host.lasts_ms;
    again.happen(HostChanged{host});
  }
  again.now += 3'600'000;
  again.happen(Tick{});
  CHECK(again.model.hosts.at({"n1"}).leaving);
  CHECK(again.model.hosts.at({"n2"}).leaving);
  CHECK(again.model.experiments.at(again.id).phase == Phase::Ending);
  CHECK(again.model.experiments.at(again.id).restarts_used == 0);
}

TEST_CASE("once a host leaves, who was behind a gang that waited for it is looked at again") {
  CoreScene scene;
  scene.host("n1", 2);
  scene.host("n2", 2);
  const ExperimentId there = scene.submit({.cpus = 2});
  scene.pass();
  scene.start(there);
  const ExperimentId gang = scene.submit({.replicas = 2, .cpus = 2});
  const ExperimentId behind = scene.submit({.cpus = 1});
  scene.pass();
  REQUIRE(!scene.is_placed(gang));
  REQUIRE(!scene.is_placed(behind));
  scene.happen(HostLeaves{scene.host_of(there) == HostId{"n1"} ? HostId{"n2"} : HostId{"n1"}, "lent no longer"});
  CHECK(scene.model.place_wanted);
}

TEST_CASE("on a drained host what runs goes on, and nothing more is placed until it is undrained") {
  CoreScene scene;
  scene.happen(HostDrained{{"n1"}});   // before it is seen
  scene.host("n1", 4);
  const ExperimentId first = scene.submit({});
  scene.pass();
  CHECK(!scene.is_placed(first));
  CHECK(scene.reason(first) == "waits for n1, which is drained until `hosts undrain n1`");
  scene.happen(HostDrained{{"n1"}, false});
  scene.pass();
  REQUIRE(scene.is_placed(first));
  scene.start(first);

  scene.happen(HostDrained{{"n1"}});
  const ExperimentId second = scene.submit({});
  scene.pass();
  CHECK(scene.model.experiments.at(first).phase == Phase::Go);
  CHECK(!scene.is_placed(second));
  scene.happen(HostDisconnected{{"n1"}});
  scene.host("n1", 4);   // a runner that starts again
  scene.pass();
  CHECK(!scene.is_placed(second));
  scene.host("n2", 4);
  scene.pass();
  CHECK(scene.host_of(second) == HostId{"n2"});
}

}  // namespace dtrain::daemon
