#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "sim/world.h"
#include "tests/support/sanitized.h"

namespace {

using dtrain::sim::Broken;
using dtrain::sim::Counts;
using dtrain::sim::World;

constexpr uint64_t kEpisodeSteps = 5'000;
constexpr uint64_t kSteps = dtrain::tests::kSanitized ? 200'000 : 1'000'000;

uint64_t from_environment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Throws Broken.
void play(World& world, uint64_t steps) {
  for (uint64_t i = 0; i < steps; ++i) world.step();
  world.quiesce();
}

// The same again, with every message written down.
std::string trace_of(uint64_t seed, uint64_t steps) {
  World world(seed, true);
  try {
    play(world, steps);
  } catch (const Broken&) {
  }
  std::string trace;
  for (const std::string& line : world.trace()) trace += line + "\n";
  return trace;
}

}  // namespace

// DTRAIN_SIM_SEED=N replays one episode (DTRAIN_SIM_STEPS: how long); otherwise DTRAIN_SIM_STEPS is
// how many steps are taken over many seeds. DTRAIN_SIM_COUNTS=1 prints what came up how often.
TEST_CASE("whatever fails and in whichever order, the promises hold") {
  const bool replay = std::getenv("DTRAIN_SIM_SEED") != nullptr;
  const uint64_t first = from_environment("DTRAIN_SIM_SEED", 1);
  const uint64_t steps = from_environment("DTRAIN_SIM_STEPS", replay ? kEpisodeSteps : kSteps);
  const uint64_t episode = replay ? steps : kEpisodeSteps;
  const uint64_t episodes = replay ? 1 : (steps + kEpisodeSteps - 1) / kEpisodeSteps;
  Counts counts;
  for (uint64_t seed = first; seed < first + episodes; ++seed) {
    World world(seed, false);
    INFO("replay with DTRAIN_SIM_SEED=", seed);  // also when an INVARIANT ends it
    try {
      play(world, episode);
    } catch (const Broken& broken) {
      FAIL(
          fmt::format("{}\nat step {}\n{}", broken.what(), world.steps(), trace_of(seed, episode)));
    }
    counts += world.counts();
  }
  const bool told = std::getenv("DTRAIN_SIM_COUNTS") != nullptr;
  for (size_t i = 0; i < counts.of.size(); ++i) {
    const char* name = dtrain::sim::kSeenNames[i];
    if (told) fmt::print("{:8} {}\n", counts.of[i], name);
    // What never came up was not tested. A sanitizer's fifth of the steps may lack the rarest.
    if (steps >= 1'000'000) CHECK_MESSAGE(counts.of[i] > 0, std::string(name));
  }
}
