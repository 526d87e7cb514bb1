#include "engine/strategies/assemble.h"

#include "tests/engine/comm/gangs.h"

namespace dtrain::engine {
namespace {

TEST_CASE("processes that compute with unlike instructions are named, by what each computes with") {
  with_gangs({.threads = {1, 1, 2}, .instructions = {"avx512", "baseline", "avx512"}}, [](Gang& gang) {
    const std::string note = unlike_instructions(gang);
    CAPTURE(note);
    CHECK(note.starts_with("computed with avx512 by worker 0 at 127.0.0.1:"));
    const size_t third = note.find(", worker 2 at 127.0.0.1:"), other = note.find(", with baseline by worker 1 at 127.0.0.1:");
    CHECK(third < other);
    CHECK(other != std::string::npos);
  });
}

TEST_CASE("of processes that compute with the same instructions nothing is said") {
  with_gangs({.threads = {1, 1}, .instructions = {"avx2", "avx2"}},
             [](Gang& gang) { CHECK(unlike_instructions(gang) == ""); });
}

}  // namespace
}  // namespace dtrain::engine
