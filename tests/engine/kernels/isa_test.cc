// Which kernels the others test: those that were asked for.
#include <doctest/doctest.h>

#include "engine/environment.h"
#include "engine/kernels/choice.h"
#include "engine/kernels/kernels.h"
#include "tests/support/skipped.h"

namespace dtrain::engine {
namespace {

TEST_CASE("the instructions that DTRAIN_ISA names are those that are computed with, where the CPU has them") {
  const std::string wanted = variable("DTRAIN_ISA");
  if (wanted.empty()) return;  // the best
  if (const Status had = check_isa_variable(); !had.ok()) return tests::say_skipped(had.error().message);
  CHECK(kernels<float>().isa == wanted);
}

}  // namespace
}  // namespace dtrain::engine
