#include "engine/strategies/assemble.h"

#include <array>
#include <nlohmann/json.hpp>

#include "engine/data/digits.h"
#include "tests/engine/comm/gangs.h"
#include "tests/support/project.h"

namespace dtrain::engine {
namespace {

namespace fs = std::filesystem;

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

// What two workers say whose digits are drawn by these seeds, each in a folder of its own.
std::array<std::string, 2> met(std::array<uint64_t, 2> seeds) {
  const test::TemporaryFolder files;
  Ports ports({.threads = {1, 1}});
  ports.listeners.clear();  // each listens at its own again
  std::array<std::string, 2> said;
  std::vector<std::thread> processes;
  for (size_t i = 0; i < 2; ++i) {
    const fs::path own = files / std::to_string(i);
    REQUIRE(generate_digits(own, {.train = 20, .test = 10, .seed = seeds[i]}).ok());
    processes.emplace_back([&, own, i] {
      const auto run = [&]() -> Status {
        const nlohmann::json json = {{"model", {{"mlp", {{"hidden", {8}}}}}},
                                     {"data", {{"train", own / "train"}, {"test", own / "test"}}},
                                     {"batch", 4},
                                     {"checkpoint", {{"from", own / "before"}}},
                                     {"deadline", kPatience_seconds}};
        TRY(EngineSpec spec, engine_spec_from_json(json.dump()));
        TRY(const RunPlan plan, make_plan(std::move(spec), ports.attendances[i].place, own));
        TRY(const auto gang, assemble(plan));
        return ok();
      };
      if (const Status status = run(); !status.ok()) said[i] = status.error().message;
    });
  }
  for (std::thread& process : processes) process.join();
  return said;
}

TEST_CASE("workers meet wherever each of them finds the data") {
  for (const std::string& said : met({1, 1})) CHECK(said == "");
}

TEST_CASE("workers with other data than the others' do not train with them") {
  for (const std::string& said : met({1, 2})) CHECK_MESSAGE(said.find(" do not fit: ") != std::string::npos, said);
}

}  // namespace
}  // namespace dtrain::engine
