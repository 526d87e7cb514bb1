#include "daemon/growth.h"

#include <doctest/doctest.h>

#include "core_scene.h"

namespace dtrain::daemon {

namespace {

Exit ended_by_term() {
  Exit exit;
  exit.signal = 15;
  return exit;
}

// Which of several workers there are, after it was stopped.
size_t begin_again(CoreScene& scene, const ExperimentId& id) {
  REQUIRE(scene.state(id) == State::Restarting);
  scene.exit_all(id, ended_by_term());
  scene.release_all(id);
  scene.pass();
  REQUIRE(scene.is_placed(id));
  scene.start(id);
  return scene.replicas_of(id);
}

struct GrowthScene : CoreScene {
  ExperimentId placed(const Wanted& wanted) {
    const ExperimentId id = submit(wanted);
    pass_time(6'000);
    REQUIRE(is_placed(id));
    start(id);
    return id;
  }
};

}  // namespace

TEST_CASE("an elastic gang that could have more, were it not for who waits ahead of it, is left alone") {
  GrowthScene scene;
  scene.host("n1", 4);
  double cpus = 0;
  SUBCASE("it would have lost its place") { cpus = 4; }
  SUBCASE("it would have come back as it was, again and again") { cpus = 7; }
  scene.host("n2", cpus);
  scene.placed({.cpus = 4, .host = "n1"});
  const auto other = scene.placed({.cpus = 2, .host = "n2"});
  const auto elastic = scene.placed({.replicas = static_cast<int>(cpus), .least = 1});
  const size_t workers = scene.replicas_of(elastic);
  CHECK(workers == static_cast<size_t>(cpus) - 2);
  const auto ahead = scene.submit({.replicas = 2, .cpus = 4, .priority = 60});
  scene.pass();
  CHECK_FALSE(scene.is_placed(ahead));
  scene.finish(other);
  scene.pass_time(3'600'000);
  CHECK(scene.state(elastic) == State::Running);
  CHECK(scene.replicas_of(elastic) == workers);
}

TEST_CASE("an elastic gang has its turn before those behind it, and before those that could not use the room") {
  GrowthScene scene;
  scene.host("n1", 4);
  scene.host("z", 1);
  const auto other = scene.placed({.cpus = 2, .host = "n1"});
  const auto elastic = scene.placed({.replicas = 4, .least = 1, .host = "n1"});
  SUBCASE("one that waits behind it") { scene.submit({.cpus = 3, .priority = 10}); }
  SUBCASE("one ahead that is too large for anything") { scene.submit({.cpus = 100, .priority = 90}); }
  SUBCASE("one ahead that waits before its next attempt elsewhere") {
    const auto failing = scene.placed({.priority = 90, .restarts = 1, .host = "z"});
    Exit failed;
    failed.code = 1;
    scene.exit_all(failing, failed);
    scene.release_all(failing);
  }
  scene.finish(other);
  scene.pass_time(2'000);
  CHECK(begin_again(scene, elastic) == 4);
}

TEST_CASE("from when it is stopped until it runs with more nobody gets what it had, nor what it is to have") {
  GrowthScene scene;
  scene.host("n1", 8);
  const auto other = scene.placed({.cpus = 4});
  const auto elastic = scene.placed({.replicas = 8, .least = 1});
  CHECK(scene.replicas_of(elastic) == 4);
  scene.finish(other);
  scene.pass_time(2'000);
  REQUIRE(scene.state(elastic) == State::Restarting);
  const auto newcomer = scene.submit({.cpus = 4});
  const auto urgent = scene.submit({.cpus = 8, .priority = 100});
  scene.pass_time(2'000);
  CHECK_FALSE(scene.is_placed(newcomer));
  CHECK(scene.reason(newcomer).find("is ahead of it") != std::string::npos);
  CHECK(begin_again(scene, elastic) == 8);
  CHECK_FALSE(scene.is_placed(urgent));
}

TEST_CASE("where seats become free one after the other an elastic gang waits for the last of them, but not for ever") {
  GrowthScene scene;
  scene.host("n1", 8);
  std::vector<ExperimentId> others;
  for (int i = 0; i < 8; ++i) others.push_back(scene.placed({}));
  const auto elastic = scene.submit({.replicas = 8, .least = 1});
  size_t ended = 0;
  SUBCASE("each a second after the other") {
    for (; ended < 6; ++ended) {
      scene.finish(others[ended]);
      scene.pass_time(1'000);
      CHECK_FALSE(scene.is_placed(elastic));
      CHECK(scene.reason(elastic).find("waits some seconds for more room") != std::string::npos);
    }
    scene.pass_time(5'000);
    CHECK(scene.replicas_of(elastic) == 6);
  }
  SUBCASE("all of them") {
    for (; ended < 8; ++ended) {
      CHECK_FALSE(scene.is_placed(elastic));
      scene.finish(others[ended]);
      scene.pass_time(1'000);
    }
    CHECK(scene.replicas_of(elastic) == 8);
  }
  SUBCASE("others come and go all the time") {
    const TimeMs begin = scene.now;
    for (int i = 0; i < 30 && !scene.is_placed(elastic); ++i) {
      scene.finish(others.back());
      others.pop_back();
      const auto small = scene.submit({.priority = 90});
      scene.pass_time(3'000);
      scene.start(small);
      others.insert(others.begin(), small);
      if (i % 4 == 3) {
        scene.finish(others.back());
        others.pop_back();
      }
    }
    CHECK(scene.is_placed(elastic));
    CHECK(scene.now - begin < 60'000);
  }
}

TEST_CASE("of two that would have more the first in order gets it") {
  GrowthScene scene;
  scene.host("n1", 6);
  const auto first = scene.placed({.cpus = 2});
  const auto other = scene.placed({.cpus = 2});
  const auto low = scene.placed({.replicas = 4, .priority = 10, .least = 1});
  CHECK(scene.replicas_of(low) == 2);
  const auto high = scene.submit({.replicas = 4, .priority = 90, .least = 1});
  scene.finish(first);
  scene.pass_time(6'000);
  CHECK(scene.replicas_of(high) == 2);
  scene.start(high);
  scene.pass_time(1'000);   // whose time has come then
  scene.finish(other);
  scene.pass_time(2'000);
  CHECK(begin_again(scene, high) == 4);
  CHECK(scene.state(low) == State::Running);
  CHECK(scene.replicas_of(low) == 2);
}

TEST_CASE("one that is begun again for some of what it lacks comes back with no fewer, whoever waits behind it") {
  GrowthScene scene;
  scene.host("n1", 6);
  const auto first = scene.placed({.cpus = 2});
  const auto second = scene.placed({.cpus = 2});
  const auto elastic = scene.placed({.replicas = 8, .least = 1});
  CHECK(scene.replicas_of(elastic) == 2);
  const auto small = scene.submit({.cpus = 3, .priority = 0});
  scene.finish(first);
  scene.pass_time(7'000);
  CHECK(begin_again(scene, elastic) == 4);
  CHECK_FALSE(scene.is_placed(small));
  (void)second;
}

TEST_CASE("an elastic gang that waits goes before the growth of another, and what settles is not taken from it") {
  GrowthScene scene;
  scene.host("n1", 8);
  const auto other = scene.placed({.cpus = 4});
  const auto running = scene.placed({.replicas = 8, .least = 1});
  CHECK(scene.replicas_of(running) == 4);
  const auto waiting = scene.submit({.replicas = 8, .least = 2});
  scene.finish(other);
  scene.pass_time(1'000);
  CHECK(scene.state(running) == State::Running);
  CHECK_FALSE(scene.is_placed(waiting));
  const auto small = scene.submit({});
  scene.pass_time(1'000);
  CHECK_FALSE(scene.is_placed(small));
  scene.pass_time(5'000);
  CHECK(scene.replicas_of(waiting) == 4);
}

TEST_CASE("two are not promised the same room, and none takes that of one who comes back") {
  GrowthScene scene;
  for (const char* name : {"n1", "n2"}) scene.host(name, 1);
  const auto a = scene.placed({.replicas = 3, .priority = 60, .least = 1});
  CHECK(scene.replicas_of(a) == 2);
  scene.host("n3", 1);
  scene.placed({.cpus = 1, .priority = 99, .host = "n3"});
  scene.host("n4", 1);
  scene.pass_time(1'000);
  CHECK(scene.state(a) == State::Restarting);   // for n4
  scene.pass_time(3'000);
  const auto late = scene.submit({.priority = 100});
  scene.pass_time(3'000);
  CHECK_FALSE(scene.is_placed(late));
  CHECK(begin_again(scene, a) == 3);
}

TEST_CASE("nothing begins again that has little time left, or of which one is done") {
  GrowthScene scene;
  scene.host("n1", 4);
  const auto other = scene.placed({.cpus = 2});
  CoreScene::Wanted wanted{.replicas = 4, .least = 1};
  bool grows = false;
  SUBCASE("it has the time, and nobody is done") { grows = true; }
  SUBCASE("it ends before that would pay") { wanted.max_duration_ms = 60'000; }
  SUBCASE("a worker is done") {}
  wanted.grow_after_ms = wanted.max_duration_ms > 0 || grows ? 35'000 : 0;
  const auto elastic = scene.placed(wanted);
  CHECK(scene.replicas_of(elastic) == 2);
  scene.pass_time(36'000);
  if (!grows && wanted.max_duration_ms == 0) {
    const Replica done = scene.model.experiments.at(elastic).replicas.back();
    scene.happen(ReplicaExited{done.id, done.attempt, Exit(), done.seat.host});
  }
  scene.finish(other);
  scene.pass_time(6'000);
  CHECK(scene.state(elastic) == (grows ? State::Restarting : State::Running));
}

}  // namespace dtrain::daemon
