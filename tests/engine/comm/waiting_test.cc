#include "engine/comm/waiting.h"

#include <doctest/doctest.h>

#include <thread>

namespace dtrain::engine {
namespace {

constexpr double kAmple_seconds = 60;

TEST_CASE("a wait that spins or sleeps ends by the deadline, and by what it waits for") {
  for (const int spins : {0, 100}) {
    CAPTURE(spins);
    Signal signal{};
    const auto wait = [&](uint32_t target, double seconds) {
      return wait_for(signal, {.deadline = Deadline::after(seconds), .spins = spins},
                      [target](uint32_t value) { return has_come_to(value, target); });
    };
    for (int i = 0; i < 200; ++i) {
      const auto waited = wait(1, 0);
      REQUIRE(waited.ok());
      CHECK(!*waited);
    }
    signal.set(1);
    CHECK(*wait(1, 0));
    std::thread other([&] { signal.set(2); });
    CHECK(*wait(2, kAmple_seconds));
    other.join();
  }
}

TEST_CASE("two that answer each other meet in every round, whether they spin or sleep") {
  for (const int spins : {0, 1, 1000}) {
    CAPTURE(spins);
    Signal ping{}, pong{};
    const auto wait = [&](Signal& signal, uint32_t target) {
      const auto waited =
          wait_for(signal, {.deadline = Deadline::after(kAmple_seconds), .spins = spins},
                   [target](uint32_t value) { return has_come_to(value, target); });
      return waited.ok() && *waited;
    };
    constexpr uint32_t kRounds = 2000;
    bool all = true;
    std::thread other([&] {
      for (uint32_t round = 1; round <= kRounds && wait(ping, round); ++round) pong.add(1);
    });
    for (uint32_t round = 1; round <= kRounds; ++round) {
      ping.add(1);
      all = all && wait(pong, round) && pong.value == round;
    }
    other.join();
    CHECK(all);
  }
}

}  // namespace
}  // namespace dtrain::engine
