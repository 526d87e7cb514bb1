// What asking who could give way costs; what comes of it is in the lifecycle scripts.
#include "daemon/preemption.h"

#include <doctest/doctest.h>

#include "core_scene.h"

namespace dtrain::daemon {

namespace {

// A host with room for none of very many that wait, each of another shape: nobody that could give way is enough.
struct InVain : CoreScene {
  explicit InVain(int waiting) {
    host("n1", 8);
    start(placed({.cpus = 6}));
    small = placed({.cpus = 1, .priority = 10, .preemptible = true});
    start(small);
    other = placed({.cpus = 1});
    start(other);
    for (int i = 0; i < waiting; ++i) submit({.cpus = 7 + i / 1000.0, .priority = 80});
  }
  ExperimentId placed(const Wanted& wanted) {
    const ExperimentId id = submit(wanted);
    pass();
    REQUIRE(is_placed(id));
    return id;
  }
  ExperimentId small, other;
};

}  // namespace

TEST_CASE("where nothing helps nobody is asked again until something changes") {
  InVain scene(40);
  CHECK(scene.pass_time(3'600'000) < 10);
  CHECK(scene.state(scene.small) == State::Running);
  scene.submit({.cpus = 1, .priority = 90});
  scene.pass_time(10'000);
  CHECK(scene.state(scene.small) == State::Restarting);
}

TEST_CASE("others keep their place the longer the more often the start of what they give way to fails") {
  CoreScene scene;
  scene.host("n1", 4);
  const ExperimentId low = scene.submit({.cpus = 4, .priority = 10, .preemptible = true});
  scene.pass();
  scene.start(low);
  const ExperimentId high = scene.submit({.cpus = 4, .priority = 80});
  TimeMs ran_since = 0, longest = 0;
  for (int ends = 0; ends < 8;) {
    scene.pass_time(1'000);
    const Experiment& first = scene.model.experiments.at(low);
    if (scene.state(low) == State::Starting) {
      scene.start(low);
      ran_since = scene.now;
    } else if (first.phase == Phase::Ending) {
      longest = std::max(longest, scene.now - ran_since);
      ++ends;
      Exit terminated;
      terminated.code = 143;
      scene.exit_all(low, terminated);
      scene.release_all(low);
    } else if (scene.is_placed(high) && scene.model.experiments.at(high).phase == Phase::Placed) {
      const Experiment& failing = scene.model.experiments.at(high);
      scene.happen(LaunchFailed{.host = failing.replicas[0].seat.host, .launch = {high, failing.attempt}, .reason = "no room", .ours = true});
    }
  }
  CHECK(longest > 30 * 60'000);
}

TEST_CASE("while something ends very many that wait are asked once a second at most") {
  InVain scene(200);
  // Most of them have had others give way: so much is looked at for them that nobody behind is asked in the same pass.
  const uint32_t first = scene.other.number + 1;
  for (uint32_t number = first; number < first + 150; ++number) {
    scene.model.experiments.at({number, 0}).preempts_from_ms = scene.now + 3'600'000;
  }
  scene.happen(KillWanted{scene.other, false});
  CHECK(scene.pass_time(3'000) < 10);
}

}  // namespace dtrain::daemon
