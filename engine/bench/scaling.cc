#include "engine/bench/scaling.h"

#include <algorithm>
#include <cmath>

#include "engine/bench/ceilings.h"
#include "engine/bench/trainings.h"
#include "engine/cpus.h"
#include "engine/data/dataset.h"
#include "engine/data/digits.h"

namespace dtrain::engine {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kFirstSeed = 42;
constexpr double kWarmEpochs = 0.5;
constexpr int kTestsAnEpoch = 16;  // while the target is looked for

// A training that the rate was too high for: a loss is no number, or after the last step a weight.
bool went_astray(const Error& error) {
  return error.hint.find("the loss ") != std::string::npos || error.hint.find("is not finite") != std::string::npos;
}

class Scaling {
 public:
  Scaling(const ScalingOptions& options, const fs::path& data,
          const std::function<void(std::string_view)>& said)
      : options_(options), data_(data), said_(said) {}

  // Rounds go through all worker counts, so that a slow minute of the machine meets each of them.
  Status throughput(ScalingResults& results) const {
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      for (const int workers : options_.workers) {
        said_(
            fmt::format("throughput: {} workers, {} of {}", workers, repeat + 1, options_.repeats));
        EngineSpec spec = weak(workers, repeat);
        spec.test_data.clear();
        spec.epoch_samples = options_.throughput_samples * workers;
        spec.optimizer.learning_rate = 0.01;
        spec.epochs = 1;
        TRY(const TrainingRecord record, run_training(options_.program, spec, workers));
        results.throughput.push_back({workers, spec.seed, record.samples_per_second()});
      }
    }
    return ok();
  }

  Status target(ScalingResults& results) const {
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      for (const int workers : options_.workers) {
        said_(fmt::format("to an accuracy of {}: {} workers, {} of {}", options_.target, workers,
                          repeat + 1, options_.repeats));
        EngineSpec spec = weak(workers, repeat);
        // It is tested where an epoch ends.
        const int64_t batch = static_cast<int64_t>(spec.batch) * workers;
        spec.epoch_samples =
            std::max(batch, options_.train_samples / kTestsAnEpoch / batch * batch);
        const auto tests = [&](double epochs) {
          return epochs * static_cast<double>(options_.train_samples) /
                 static_cast<double>(spec.epoch_samples);
        };
        spec.epochs = std::ceil(tests(options_.target_epochs));
        spec.checkpoint_epochs = spec.epochs;
        apply(spec, RateRule::ScaledWarm);
        spec.schedule.warm_up_epochs = 0;
        spec.schedule.warm_up_steps = std::max<int64_t>(
            1, std::llround(kWarmEpochs / 4 * static_cast<double>(options_.train_samples) /
                            static_cast<double>(batch)));
        const auto record = run_training(options_.program, spec, workers);
        if (record.ok()) {
          results.target.push_back(run_of(*record, workers, spec.seed));
        } else if (went_astray(record.error())) {
          results.target.push_back({.workers = workers, .seed = spec.seed});
        } else {
          return record.error();
        }
      }
    }
    return ok();
  }

  Status batches(ScalingResults& results) const {
    for (int repeat = 0; repeat < options_.repeats; ++repeat) {
      for (const int batch : options_.batches) {
        said_(fmt::format("batch {}: {} of {}", batch, repeat + 1, options_.repeats));
        for (const RateRule rule : {RateRule::Fixed, RateRule::Scaled, RateRule::ScaledWarm}) {
          EngineSpec spec = common(repeat);
          spec.strategy.kind = Strategy::Single;
          spec.batch = batch;
          spec.threads = cpus();
          spec.epoch_samples = options_.train_samples;
          spec.epochs = spec.checkpoint_epochs = options_.fixed_epochs;
          apply(spec, rule);
          const auto record = run_training(options_.program, spec, 1);
          BatchRun run{.batch = batch,
                       .rule = rule,
                       .seed = spec.seed,
                       .learning_rate = highest_rate(spec, batch)};
          if (record.ok()) {
            run.steps = record->intervals.back().step;
            run.accuracy = record->final_accuracy();
          } else if (!went_astray(record.error())) {
            return record.error();
          } else {
            run.diverged = true;
          }
          results.batch.push_back(run);
        }
      }
    }
    return ok();
  }

 private:
  EngineSpec common(int repeat) const {
    EngineSpec spec;
    spec.model = options_.model;
    spec.train_data = data_ / "train";
    spec.test_data = data_ / "test";
    spec.optimizer.learning_rate = options_.learning_rate;
    spec.checkpoint_keep = 1;
    spec.seed = kFirstSeed + static_cast<uint64_t>(repeat);
    spec.deadline_seconds = 120;
    return spec;
  }

  // Each worker has one thread and a batch of its own.
  EngineSpec weak(int workers, int repeat) const {
    EngineSpec spec = common(repeat);
    spec.strategy.kind = workers == 1 ? Strategy::Single : Strategy::MultiWorkerMirrored;
    spec.weak_scaling = true;
    spec.batch = options_.worker_batch;
    spec.threads = 1;
    return spec;
  }

  void apply(EngineSpec& spec, RateRule rule) const {
    if (rule != RateRule::Fixed) spec.schedule.scale_with_batch = options_.base_batch;
    if (rule == RateRule::ScaledWarm) spec.schedule.warm_up_epochs = kWarmEpochs;
  }

  double highest_rate(const EngineSpec& spec, int batch) const {
    const int base = spec.schedule.scale_with_batch;
    return options_.learning_rate * (base == 0 ? 1 : static_cast<double>(batch) / base);
  }

  TargetRun run_of(const TrainingRecord& record, int workers, uint64_t seed) const {
    const size_t reached = record.reached(options_.target);
    TargetRun run{.workers = workers, .seed = seed, .reached = reached < record.intervals.size()};
    for (size_t i = 0; i < record.intervals.size(); ++i) {
      const MeasuredInterval& each = record.intervals[i];
      run.curve.push_back({each.step, each.accuracy});
      if (i > reached) continue;
      run.steps = each.step;
      run.seconds += each.seconds;
    }
    return run;
  }

  const ScalingOptions& options_;
  const fs::path& data_;
  const std::function<void(std::string_view)>& said_;
};

Status check(const ScalingOptions& options) {
  const auto wrong = [](std::string what) {
    return Status(Error{Code::InvalidArgument, std::move(what), ""});
  };
  if (options.workers.empty() || options.batches.empty()) return wrong("nothing to compare");
  for (const int workers : options.workers) {
    if (workers < 1 || workers > 64)
      return wrong(fmt::format("{} workers are not between 1 and 64", workers));
  }
  for (const int batch : options.batches) {
    if (batch < 1 || batch > options.train_samples) {
      return wrong(fmt::format("a batch of {} is not between 1 and the {} samples of an epoch",
                               batch, options.train_samples));
    }
  }
  if (options.repeats < 1) return wrong("at least one repeat");
  if (options.target <= 0 || options.target > 1) return wrong("an accuracy is between 0 and 1");
  return ok();
}

}  // namespace

const char* to_string(RateRule rule) {
  switch (rule) {
    case RateRule::Fixed:
      return "fixed";
    case RateRule::Scaled:
      return "scaled";
    case RateRule::ScaledWarm:
      return "scaled+warm-up";
  }
  return "";
}

Result<ScalingResults> bench_scaling(const ScalingOptions& given,
                                     const std::function<void(std::string_view)>& said) {
  ScalingOptions options = given;
  TRY(check(options));
  TRY(const ScratchFolder scratch, ScratchFolder::create());
  fs::path data = options.data;
  if (data.empty()) {
    data = scratch.path();
    said("drawing digits");
    TRY(generate_digits(
        data, {.train = options.train_samples, .test = options.test_samples, .seed = 42}));
  }
  data = fs::absolute(data);
  TRY(const Dataset train, Dataset::open(data / "train", {}));
  TRY(const Dataset test, Dataset::open_like(train, data / "test"));
  options.train_samples = train.size();
  TRY(check(options));
  ScalingResults results{.options = options, .cpus = cpus(), .idle_cpus = idle_cpus(0.5)};
  const Scaling scaling(options, data, said);
  TRY(scaling.throughput(results));
  TRY(scaling.target(results));
  TRY(scaling.batches(results));
  return results;
}

// ---- medians

namespace {

Spread spread_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto [low, high] = std::ranges::minmax(values);
  return {low, median(values), high};
}

// Of those that did not reach it nothing is known but that they needed more.
template <class Value>
Spread until_target(const std::vector<TargetRun>& runs, int workers, Value value) {
  std::vector<double> values;
  for (const TargetRun& run : runs) {
    if (run.workers == workers) values.push_back(run.reached ? value(run) : INFINITY);
  }
  return spread_of(values);
}

double or_never(const Spread& spread) { return std::isfinite(spread.middle) ? spread.middle : -1; }

}  // namespace

Spread ScalingResults::rates_of(int workers) const {
  std::vector<double> values;
  for (const ThroughputRun& run : throughput) {
    if (run.workers == workers) values.push_back(run.samples_per_second);
  }
  return spread_of(values);
}
Spread ScalingResults::steps_of(int workers) const {
  return until_target(target, workers,
                      [](const TargetRun& run) { return static_cast<double>(run.steps); });
}
Spread ScalingResults::accuracies_of(int of, RateRule rule) const {
  std::vector<double> values;
  for (const BatchRun& run : batch) {
    if (run.batch == of && run.rule == rule) values.push_back(run.accuracy);
  }
  return spread_of(values);
}

double ScalingResults::samples_per_second(int workers) const { return rates_of(workers).middle; }
double ScalingResults::steps_to_target(int workers) const { return or_never(steps_of(workers)); }
double ScalingResults::seconds_to_target(int workers) const {
  return or_never(until_target(target, workers, [](const TargetRun& run) { return run.seconds; }));
}
double ScalingResults::accuracy(int of, RateRule rule) const { return accuracies_of(of, rule).middle; }

int ScalingResults::knee(RateRule rule, double tolerance) const {
  double best = 0;
  for (const int each : options.batches) {
    for (const RateRule any : {RateRule::Fixed, RateRule::Scaled, RateRule::ScaledWarm}) {
      best = std::max(best, accuracy(each, any));
    }
  }
  int largest = 0;
  for (const int each : options.batches) {
    if (accuracy(each, rule) >= best - tolerance) largest = std::max(largest, each);
  }
  return largest;
}

}  // namespace dtrain::engine
