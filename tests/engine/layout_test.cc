#include "engine/layout.h"

#include <doctest/doctest.h>

namespace dtrain::engine {
namespace {

TEST_CASE("parameters lie one after the other, each on a cache line") {
  Layout layout;
  CHECK(layout.add({.name = "a", .shape = {3, 7}}) == 0);
  CHECK(layout.add({.name = "b", .shape = {16}}) == 32);
  CHECK(layout.add({.name = "c", .shape = {}}) == 48);
  CHECK(layout.size() == 64);
  CHECK(layout.parameters()[1].range() == Range{32, 48});
  CHECK(layout.parameters()[2].range() == Range{48, 49});
}

}  // namespace
}  // namespace dtrain::engine
