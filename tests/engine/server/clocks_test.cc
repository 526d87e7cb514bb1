#include "engine/server/clocks.h"

#include <doctest/doctest.h>

namespace dtrain::engine {
namespace {

TEST_CASE("who is too far ahead of the slowest waits") {
  Clocks clocks(3);
  clocks.advance(0, 5);
  clocks.advance(1, 3);
  CHECK(clocks.slowest() == 0);
  CHECK(clocks.may_pass(3, 3));
  CHECK_FALSE(clocks.may_pass(5, 3));
  clocks.advance(2, 2);
  CHECK(clocks.may_pass(5, 3));
  CHECK_FALSE(clocks.may_pass(5, 0));
  clocks.advance(2, 1);
  CHECK(clocks.clock(2) == 2);
}

TEST_CASE("nobody waits for one that is gone, nor for one that comes back") {
  Clocks clocks(2);
  clocks.advance(0, 7);
  clocks.take_out(1);
  CHECK(clocks.may_pass(7, 0));
  clocks.put_back(1);
  CHECK(clocks.clock(1) == 7);
  CHECK(clocks.may_pass(8, 1));
  CHECK_FALSE(clocks.may_pass(9, 1));
  clocks.take_out(0);
  clocks.take_out(1);
  CHECK(clocks.may_pass(1000, 0));
  clocks.put_back(0);
  CHECK(clocks.clock(0) == 7);
}

}  // namespace
}  // namespace dtrain::engine
