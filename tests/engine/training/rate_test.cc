#include "engine/training/rate.h"

#include <doctest/doctest.h>

namespace dtrain::engine {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a rate is what came between the first count and the last") {
  const Rate::Clock::time_point start{};
  Rate rate;
  CHECK(!rate.per_second());
  rate.count(start, 1000);  // what came before an interval belongs to another
  CHECK(!rate.per_second());
  rate.count(start + 1s, 1030);
  rate.count(start + 4s, 1200);
  CHECK(rate.per_second().value() == doctest::Approx(50));
}

TEST_CASE("counts at one moment make no rate") {
  const Rate::Clock::time_point start{};
  Rate rate;
  rate.count(start, 0);
  rate.count(start, 64);
  CHECK(!rate.per_second());
}

}  // namespace
}  // namespace dtrain::engine
