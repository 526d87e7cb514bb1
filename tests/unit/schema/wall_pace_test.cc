#include "schema/wall_pace.h"

#include <doctest/doctest.h>

using namespace dtrain;

namespace {

constexpr int64_t kHourMs = 3'600'000;
constexpr int64_t kYearMs = 365 * 24 * kHourMs;

}  // namespace

TEST_CASE("a wall clock is believed from the second look on") {
  WallPace pace;
  CHECK_FALSE(pace.keeps(50 * kYearMs, kHourMs));
  CHECK(pace.keeps(50 * kYearMs + kHourMs, 2 * kHourMs));
  // A clock that is kept right is set by a little now and then.
  CHECK(pace.keeps(50 * kYearMs + 2 * kHourMs + 5'000, 3 * kHourMs));
}

TEST_CASE("one that is set by years is believed a day later, and not if it is set back before") {
  WallPace pace;
  int64_t boot_ms = kHourMs, unix_ms = 50 * kYearMs;
  const auto look = [&] { return pace.keeps(unix_ms, boot_ms); };
  const auto an_hour_later = [&] {
    boot_ms += kHourMs;
    unix_ms += kHourMs;
    return look();
  };
  look();
  REQUIRE(an_hour_later());
  unix_ms += 20 * kYearMs;
  CHECK_FALSE(an_hour_later());
  for (int hour = 1; hour < 20; ++hour) CHECK_FALSE(an_hour_later());
  unix_ms -= 20 * kYearMs;
  for (int hour = 0; hour < 24; ++hour) CHECK_FALSE(an_hour_later());
  CHECK(an_hour_later());
}
