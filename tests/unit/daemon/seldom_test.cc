#include "daemon/seldom.h"

#include <doctest/doctest.h>

namespace dtrain::daemon {
namespace {

TEST_CASE("what takes turns is said once each, and again after a while") {
  Seldom seldom;
  const Seldom::Clock::time_point start{};
  for (int round = 0; round < 3; ++round) {
    for (const std::string text : {"no certificate", "no TLS"})
      CHECK(seldom.is_news(text, start) == (round == 0));
  }
  CHECK_FALSE(seldom.is_news("no TLS", start + Seldom::kAgainAfter - std::chrono::seconds(1)));
  CHECK(seldom.is_news("no TLS", start + Seldom::kAgainAfter));
}

TEST_CASE(
    "who has something new to say each time is heard out to a point, and so are others after a "
    "while") {
  Seldom seldom;
  const Seldom::Clock::time_point start{};
  size_t said = 0;
  for (int i = 0; i < 1'000; ++i) said += seldom.is_news(std::to_string(i), start) ? 1 : 0;
  CHECK(said == Seldom::kTextsMax);
  CHECK(seldom.is_news("no TLS", start + Seldom::kAgainAfter));
}

}  // namespace
}  // namespace dtrain::daemon
