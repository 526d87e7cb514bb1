#include "engine/bench/scaling.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "tests/support/project.h"

namespace dtrain::engine {
namespace {

namespace fs = std::filesystem;

ScalingOptions tiny() {
  ScalingOptions options;
  options.program = BIN_DIR "/dtrain-engine";
  options.model = MlpSpec{{32}};
  options.workers = {1, 2};
  options.batches = {32, 2048};
  options.repeats = 1;
  options.train_samples = 4096;
  options.test_samples = 500;
  options.throughput_samples = 4096;
  options.target = 0.7;
  options.target_epochs = 4;
  options.learning_rate = 0.05;
  return options;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream all(text);
  for (std::string line; std::getline(all, line);) lines.push_back(line);
  return lines;
}

// Records of an event file, up to its very end.
int records_in(const fs::path& path) {
  const std::string bytes = test::read_file(path);
  int records = 0;
  size_t at = 0;
  while (at < bytes.size()) {
    uint64_t length = 0;
    REQUIRE(bytes.size() - at >= 16);
    std::memcpy(&length, bytes.data() + at, sizeof length);
    at += 16 + length;
    ++records;
  }
  CHECK(at == bytes.size());
  return records;
}

TEST_CASE("the three results point the way they must, and are written") {
  const auto results = bench_scaling(tiny(), [](std::string_view) {});
  if (!results.ok()) FAIL(results.error().message, " ", results.error().hint);

  CHECK(results->throughput.size() == 2);
  for (const int workers : {1, 2}) CHECK(results->samples_per_second(workers) > 0);
  // Two workers see as many samples in half the steps.
  CHECK(results->steps_to_target(1) > 0);
  CHECK(results->steps_to_target(2) > 0);
  CHECK(results->steps_to_target(2) < results->steps_to_target(1));
  CHECK(results->seconds_to_target(2) > 0);
  // Four steps of two epochs teach less than 256.
  CHECK(results->accuracy(2048, RateRule::Fixed) < results->accuracy(32, RateRule::Fixed) - 0.1);
  CHECK(results->knee(RateRule::Fixed) == 32);

  const test::TemporaryFolder folder;
  const Status written = write_scaling(*results, folder / "out");
  REQUIRE(written.ok());

  const auto csv = lines_of(test::read_file(folder / "out/scaling.csv"));
  CHECK(csv.size() == 1 + 2 + 2 + 2 * 3);
  for (const std::string& line : csv) CHECK(std::ranges::count(line, ',') == 10);

  const std::string svg = test::read_file(folder / "out/scaling.svg");
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.ends_with("</svg>\n"));

  int curves = 0;
  for (const auto& entry : fs::recursive_directory_iterator(folder / "out/events")) {
    if (!entry.is_regular_file()) continue;
    ++curves;
    CHECK(records_in(entry.path()) > 2);  // the first says which version
  }
  CHECK(curves == 2 + 2 + 3);

  const std::string text = scaling_text(*results);
  for (const std::string& line : lines_of(text)) CHECK_MESSAGE(line.size() <= 80, line);
  CHECK(text.find("1. 2 workers do ") != std::string::npos);
  CHECK(text.find("2. 2 workers need ") != std::string::npos);
  CHECK(text.find("3. fixed: as good as any up to batch 32; at 2048 ") != std::string::npos);
}

ScalingResults made_up() {
  ScalingResults results{.options = tiny(), .cpus = 2, .idle_cpus = 1};
  for (const int workers : {1, 2}) {
    results.throughput.push_back({workers, 42, 100.0 * workers});
    results.target.push_back(
        {.workers = workers, .seed = 42, .reached = workers == 1, .steps = 10, .seconds = 1});
  }
  for (const int batch : {32, 2048}) {
    for (const RateRule rule : {RateRule::Fixed, RateRule::Scaled, RateRule::ScaledWarm}) {
      results.batch.push_back({.batch = batch, .rule = rule, .accuracy = 0.9});
    }
  }
  return results;
}

TEST_CASE("what did not happen is not claimed") {
  const std::string text = scaling_text(made_up());
  CHECK(text.find("2 workers did not reach the accuracy that 1 reached") != std::string::npos);
  CHECK(text.find("3. fixed: as good as any up to batch 2048, the largest") != std::string::npos);
  CHECK(text.find("fewer idle CPUs than workers") != std::string::npos);
  ScalingResults idle = made_up();
  idle.idle_cpus = 2;
  CHECK(scaling_text(idle).find("fewer idle CPUs") == std::string::npos);
}

TEST_CASE("repeats are told by their median, and from which to which") {
  ScalingResults results = made_up();
  results.options.repeats = 3;
  results.throughput.push_back({2, 43, 150});
  results.throughput.push_back({2, 44, 190});
  for (const uint64_t seed : {43, 44}) {
    results.target.push_back({.workers = 1, .seed = seed, .reached = seed == 43, .steps = 30, .seconds = 1});
    for (const double more : {0.01, 0.02}) {
      results.batch.push_back({.batch = 32, .rule = RateRule::Fixed, .accuracy = 0.9 + more});
    }
  }
  CHECK(results.accuracies_of(32, RateRule::Fixed).high == doctest::Approx(0.92));
  const std::string text = scaling_text(results);
  CHECK_MESSAGE(text.find("190 (150-200)") != std::string::npos, text);
  CHECK(text.find("30 (10-never)") != std::string::npos);
  CHECK(text.find("91.0 (90.0-92.0)") != std::string::npos);
  for (const std::string& line : lines_of(text)) CHECK_MESSAGE(line.size() <= 80, line);
}

TEST_CASE("a rate too high for a batch is a result, not the end of the bench") {
  ScalingOptions options = tiny();
  options.batches = {32, 4096};  // one step an epoch: weights break after the last loss
  options.learning_rate = 100;
  const auto results = bench_scaling(options, [](std::string_view) {});
  if (!results.ok()) FAIL(results.error().message, " ", results.error().hint);
  CHECK(std::ranges::any_of(results->batch, [](const BatchRun& run) { return run.diverged; }));
  CHECK(scaling_text(*results).find("0.0 in 3: the rate was too high") != std::string::npos);
  CHECK(scaling_text(made_up()).find("0.0 in 3") == std::string::npos);
}

TEST_CASE("what can't be compared is refused before anything runs") {
  ScalingOptions options = tiny();
  options.batches = {32, 5000};
  CHECK(bench_scaling(options, [](std::string_view) {}).error().code == Code::InvalidArgument);
  options = tiny();
  options.data = "/nonexistent";
  CHECK(!bench_scaling(options, [](std::string_view) {}).ok());
}

}  // namespace
}  // namespace dtrain::engine
