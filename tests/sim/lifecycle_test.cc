#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "sim/world.h"

namespace {

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

constexpr uint64_t kEpisodeSteps = 3'000;

}  // namespace

// DTRAIN_SIM_SEED=N replays one episode (DTRAIN_SIM_STEPS: how long); otherwise DTRAIN_SIM_STEPS is how
// many steps are taken over many seeds.
TEST_CASE("whatever fails and in whichever order, the promises hold") {
  const bool replay = std::getenv("DTRAIN_SIM_SEED") != nullptr;
  const uint64_t first = from_environment("DTRAIN_SIM_SEED", 1);
  const uint64_t steps = from_environment("DTRAIN_SIM_STEPS", replay ? kEpisodeSteps : 200'000);
  const uint64_t episodes = replay ? 1 : (steps + kEpisodeSteps - 1) / kEpisodeSteps;
  for (uint64_t seed = first; seed < first + episodes; ++seed) {
    dtrain::sim::World world(seed);
    try {
      for (uint64_t i = 0; i < (replay ? steps : kEpisodeSteps); ++i) world.step();
      world.quiesce();
    } catch (const dtrain::sim::Broken& broken) {
      std::string trace;
      for (const std::string& line : world.trace()) trace += line + "\n";
      FAIL(fmt::format("{}\nreplay with DTRAIN_SIM_SEED={}\n{}", broken.what(), seed, trace));
    }
  }
  CHECK(episodes > 0);
}
