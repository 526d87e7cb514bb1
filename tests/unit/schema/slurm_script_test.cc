#include "schema/slurm_script.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "schema/expand.h"
#include "tests/support/golden.h"
#include "tests/unit/schema/specs.h"

using namespace dtrain;
using namespace dtrain::tests;

TEST_CASE("a dtrain.yml is written as a batch script of Slurm, which says what it leaves out") {
  for (const auto& file : golden_files("slurm", ".yml")) {
    CAPTURE(file.filename().string());
    const auto script = slurm_script(member_spec(spec_of(text_of(file)), 1));
    REQUIRE(script.ok());
    std::string got = script->text;
    for (const LeftOut& one : script->left_out) got += fmt::format("# left out: {}; {}\n", one.key, one.why);
    for (const std::string& note : script->notes) got += "# " + note + "\n";
    check_expected(file, got);
  }
}

TEST_CASE("the engine is no batch script") {
  CHECK(!slurm_script(spec_of(text_of(TESTDATA "/spec/good/engine-small.yml"))).ok());
}
