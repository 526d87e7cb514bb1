#include "daemon/rare.h"

#include <doctest/doctest.h>

#include <string>

namespace dtrain::daemon {
namespace {

TEST_CASE("a rare value is a value: a copy is its own, and small where there is none") {
  Rare<std::string> none;
  CHECK(!none);
  CHECK(!none.has_value());
  CHECK(sizeof none == sizeof(void*));

  Rare<std::string> one = std::string("one");
  Rare<std::string> copy = one;
  CHECK(copy == one);
  CHECK(copy != none);
  CHECK(none == Rare<std::string>());
  *copy += " more";
  CHECK(*one == "one");
  CHECK(copy->size() == 8);
  CHECK(copy != one);

  one = copy;
  CHECK(*one == "one more");
  one = none;
  CHECK(!one);
  copy.reset();
  CHECK(copy == one);
}

}  // namespace
}  // namespace dtrain::daemon
