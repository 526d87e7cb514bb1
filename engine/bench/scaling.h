// The book's three results, by real trainings on drawn digits: more workers do more samples a
// second; more workers need fewer steps to an accuracy; and with the epochs fixed, too large a
// batch learns less.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/engine_spec.h"
#include "schema/result.h"

namespace dtrain::engine {

struct ScalingOptions {
  std::string program;         // dtrain-engine
  std::filesystem::path data;  // has train/ and test/; empty: digits are drawn
  ModelSpec model = LenetSpec{};
  std::vector<int> workers = {1, 2, 4};
  std::vector<int> batches = {32, 64, 128, 256, 512, 1024, 2048, 4096, 8192};
  int repeats = 3;                 // with seeds of their own
  int64_t train_samples = 60'000;  // of digits that are drawn
  int64_t test_samples = 10'000;
  int worker_batch = 64;  // of each worker, in the first two results
  int base_batch = 32;    // for which the learning rate is
  double learning_rate = 0.02;
  double target = 0.9;                  // accuracy, of the second
  double target_epochs = 2;             // at most, until it
  double fixed_epochs = 2;              // of the third
  int64_t throughput_samples = 60'000;  // of each worker, of the first
};

// How the learning rate goes with the batch: not at all; in proportion; in proportion, after a rise
// from 0.
enum class RateRule { Fixed, Scaled, ScaledWarm };
const char* to_string(RateRule rule);

// One training.
struct ThroughputRun {
  int workers = 1;
  uint64_t seed = 0;
  double samples_per_second = 0;
};
struct TargetRun {
  int workers = 1;
  uint64_t seed = 0;
  bool reached = false;
  int64_t steps = 0;  // until then; else all there were
  double seconds = 0;
  struct Point {
    int64_t step;
    double accuracy;
  };
  std::vector<Point> curve = {};
};
struct BatchRun {
  int batch = 0;
  RateRule rule = RateRule::Fixed;
  uint64_t seed = 0;
  int64_t steps = 0;
  double learning_rate = 0;  // at its highest
  double accuracy = 0;
  bool diverged = false;  // the loss was no number any more: it knows nothing
};

// What the repeats of one point came to.
struct Spread {
  double low = 0, middle = 0, high = 0;
};

struct ScalingResults {
  ScalingOptions options;
  int cpus = 1;
  double idle_cpus = 0;  // before it began
  std::vector<ThroughputRun> throughput = {};
  std::vector<TargetRun> target = {};
  std::vector<BatchRun> batch = {};

  // Over the repeats. Steps are infinite where the target was not reached.
  Spread rates_of(int workers) const;
  Spread steps_of(int workers) const;
  Spread accuracies_of(int batch, RateRule rule) const;
  // Medians of them. steps and seconds to the target: negative where most did not reach
  // it.
  double samples_per_second(int workers) const;
  double steps_to_target(int workers) const;
  double seconds_to_target(int workers) const;
  double accuracy(int batch, RateRule rule) const;
  // The largest batch up to which a rule stays within so much of the best accuracy of any.
  int knee(RateRule rule, double tolerance = 0.01) const;
};

// `said` hears what is being done.
Result<ScalingResults> bench_scaling(const ScalingOptions& options,
                                     const std::function<void(std::string_view)>& said);

// scaling.csv, scaling.svg and events/ below the folder.
Status write_scaling(const ScalingResults& results, const std::filesystem::path& folder);

// For a terminal of 80 columns: plots, and what they show, in words.
std::string scaling_text(const ScalingResults& results);

}  // namespace dtrain::engine
