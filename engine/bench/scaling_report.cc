// What came of bench scaling, for readers: CSV, event files, SVG, and a terminal.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fstream>

#include "engine/bench/scaling.h"
#include "engine/bench/svg_plot.h"
#include "engine/formats/event_file.h"

namespace dtrain::engine {

namespace fs = std::filesystem;

namespace {

constexpr RateRule kRules[] = {RateRule::Fixed, RateRule::Scaled, RateRule::ScaledWarm};

// ---- files

std::string csv(const ScalingResults& results) {
  std::string out =
      "result,workers,batch,rule,seed,steps,learning_rate,seconds,samples_per_second,accuracy,"
      "outcome\n";
  const ScalingOptions& options = results.options;
  for (const ThroughputRun& run : results.throughput) {
    out += fmt::format("throughput,{},{},,{},,,,{:.1f},,\n", run.workers,
                       options.worker_batch * run.workers, run.seed, run.samples_per_second);
  }
  for (const TargetRun& run : results.target) {
    out +=
        fmt::format("target,{},{},{},{},{},,{:.4f},,{},{}\n", run.workers,
                    options.worker_batch * run.workers, to_string(RateRule::ScaledWarm), run.seed,
                    run.steps, run.seconds, options.target, run.reached ? "reached" : "missed");
  }
  for (const BatchRun& run : results.batch) {
    out += fmt::format("batch,1,{},{},{},{},{:g},,,{:.4f},{}\n", run.batch, to_string(run.rule),
                       run.seed, run.steps, run.learning_rate, run.accuracy,
                       run.diverged ? "diverged" : "");
  }
  return out;
}

Status write(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  return file ? ok() : Status(errno_error("write " + path.native(), errno));
}

// A curve a folder, as TensorBoard has them; what the x axis is stands in for its steps.
Status write_events(const ScalingResults& results, const fs::path& folder) {
  const auto curve = [&](const std::string& name) -> Result<EventFile> {
    std::error_code error;
    fs::create_directories(folder / name, error);
    if (error) return errno_error("make " + (folder / name).native(), error.value());
    return EventFile::create(folder / name, 0);
  };
  TRY(EventFile throughput, curve("throughput"));
  TRY(EventFile to_target, curve("target"));
  for (const int workers : results.options.workers) {
    throughput.scalar("samples_per_second by workers", workers,
                      results.samples_per_second(workers));
    to_target.scalar("steps to the accuracy by workers", workers, results.steps_to_target(workers));
    to_target.scalar("seconds to the accuracy by workers", workers,
                     results.seconds_to_target(workers));
  }
  for (const TargetRun& run : results.target) {
    TRY(EventFile events, curve(fmt::format("target/{}-workers-seed-{}", run.workers, run.seed)));
    for (const TargetRun::Point& point : run.curve)
      events.scalar("accuracy", point.step, point.accuracy);
  }
  for (const RateRule rule : kRules) {
    TRY(EventFile events, curve(fmt::format("batch/{}", to_string(rule))));
    for (const int batch : results.options.batches) {
      events.scalar("accuracy by batch", batch, results.accuracy(batch, rule));
    }
  }
  return ok();
}

std::string svg(const ScalingResults& results) {
  PlotSeries rate{"measured", {}, {}}, ideal{"as many times as one", {}, {}}, steps{"steps", {}, {}};
  const auto add = [](PlotSeries& series, double x, const Spread& spread) {
    series.x.push_back(x);
    series.y.push_back(spread.middle);
    series.low.push_back(spread.low);
    // One that did not reach the target has no end; it shows where the whisker is missing.
    series.high.push_back(std::isfinite(spread.high) ? spread.high : spread.middle);
  };
  const std::vector<int>& counts = results.options.workers;
  for (const int workers : counts) {
    add(rate, workers, results.rates_of(workers));
    ideal.x.push_back(workers);
    ideal.y.push_back(rate.y.front() * workers / counts.front());
    if (results.steps_to_target(workers) < 0) continue;
    add(steps, workers, results.steps_of(workers));
  }
  std::vector<PlotSeries> rules;
  for (const RateRule rule : kRules) {
    PlotSeries& series = rules.emplace_back(PlotSeries{to_string(rule), {}, {}});
    for (const int batch : results.options.batches) {
      const Spread found = results.accuracies_of(batch, rule);
      add(series, batch, {100 * found.low, 100 * found.middle, 100 * found.high});
    }
  }
  return svg_plot({{"1. Throughput", "workers", "samples a second", {rate, ideal}},
                   {fmt::format("2. Steps to {:g} % accuracy", 100 * results.options.target),
                    "workers",
                    "steps",
                    {steps}},
                   {fmt::format("3. Accuracy after {:g} epochs, %", results.options.fixed_epochs),
                    "batch", "accuracy", rules}});
}

// ---- a terminal

std::string bar(double value, double most, int width) {
  const double share = most > 0 ? std::clamp(value / most, 0.0, 1.0) : 0;
  return std::string(static_cast<size_t>(std::lround(share * width)), '#');
}

// The median, and between which values it lies; one value alone where there is one.
std::string spread_text(const Spread& spread, int decimals) {
  const auto text = [&](double value) {
    return std::isfinite(value) ? fmt::format("{:.{}f}", value, decimals) : std::string("never");
  };
  const std::string middle = text(spread.middle);
  if (spread.low == spread.high) return middle;
  return fmt::format("{} ({}-{})", middle, text(spread.low), text(spread.high));
}

std::string seconds_text(double seconds) {
  return seconds < 0 ? "-" : fmt::format("{:.2f}", seconds);
}

bool lacks_cores(const ScalingResults& results, int workers) {
  return workers > results.idle_cpus + 0.5;
}

std::string throughput_text(const ScalingResults& results) {
  std::string out = fmt::format(
      "1. Throughput, {} samples a step of each worker, one thread each\n\n"
      "{:>8} {:>24} {:>7}\n",
      results.options.worker_batch, "workers", "samples/s", "times");
  double most = 0;
  for (const int workers : results.options.workers)
    most = std::max(most, results.samples_per_second(workers));
  const double first = results.samples_per_second(results.options.workers.front());
  for (const int workers : results.options.workers) {
    const double rate = results.samples_per_second(workers);
    out += fmt::format("{:>8} {:>24} {:>7.2f}  {}{}\n", workers,
                       spread_text(results.rates_of(workers), 0), rate / first, bar(rate, most, 32), lacks_cores(results, workers) ? " *" : "");
  }
  return out;
}

std::string target_text(const ScalingResults& results) {
  std::string out = fmt::format(
      "2. To {:g} % of the test set, learning rate scaled with the batch, warm-up\n\n"
      "{:>8} {:>24} {:>7}\n",
      100 * results.options.target, "workers", "steps", "seconds");
  double most = 0;
  for (const int workers : results.options.workers)
    most = std::max(most, results.steps_to_target(workers));
  for (const int workers : results.options.workers) {
    const double steps = results.steps_to_target(workers);
    out += fmt::format("{:>8} {:>24} {:>7}  {}{}\n", workers,
                       spread_text(results.steps_of(workers), 0),
                       seconds_text(results.seconds_to_target(workers)), bar(steps, most, 32),
                       lacks_cores(results, workers) ? " *" : "");
  }
  return out;
}

std::string batch_text(const ScalingResults& results) {
  std::string out =
      fmt::format("3. Accuracy in % after {:g} epochs, by batch and learning rate\n\n{:>8}",
                  results.options.fixed_epochs, "batch");
  for (const RateRule rule : kRules) out += fmt::format(" {:>21}", to_string(rule));
  out += '\n';
  for (const int batch : results.options.batches) {
    out += fmt::format("{:>8}", batch);
    for (const RateRule rule : kRules) {
      const Spread found = results.accuracies_of(batch, rule);
      out += fmt::format(" {:>21}", spread_text({100 * found.low, 100 * found.middle, 100 * found.high}, 1));
    }
    out += '\n';
  }
  return out;
}

// What the figures say, and where they say nothing.
std::string conclusions(const ScalingResults& results) {
  const std::vector<int>& counts = results.options.workers;
  const int few = counts.front();
  std::string out = "What they show\n\n";
  for (const int workers : counts) {
    if (workers == few) continue;
    const double times = results.samples_per_second(workers) / results.samples_per_second(few);
    out += fmt::format(
        "1. {} workers do {:.2f} times the samples of {}: {:.0f} % of what more workers could.\n",
        workers, times, few, 100 * times * few / workers);
  }
  const double base = results.steps_to_target(few);
  if (base < 0)
    out += fmt::format("2. {} did not reach the accuracy: nothing to compare with.\n", few);
  for (const int workers : counts) {
    if (workers == few || base < 0) continue;
    const double steps = results.steps_to_target(workers);
    if (steps < 0) {
      out +=
          fmt::format("2. {} workers did not reach the accuracy that {} reached.\n", workers, few);
      continue;
    }
    const double seconds = results.seconds_to_target(workers) / results.seconds_to_target(few);
    out += fmt::format("2. {} workers need {:.2f} of the steps of {}, and {:.2f} of the time.\n",
                       workers, steps / base, few, seconds);
  }
  const int last = results.options.batches.back();
  for (const RateRule rule : kRules) {
    const int knee = results.knee(rule);
    if (knee == 0) {
      out += fmt::format("3. {}: no batch is as good as the best.\n", to_string(rule));
    } else if (knee >= last) {
      out += fmt::format("3. {}: as good as any up to batch {}, the largest.\n", to_string(rule),
                         last);
    } else {
      out += fmt::format("3. {}: as good as any up to batch {}; at {} {:.1f} points worse.\n",
                         to_string(rule), knee, last,
                         100 * (results.accuracy(knee, rule) - results.accuracy(last, rule)));
    }
  }
  out += fmt::format("\n{} CPUs, {:.1f} of them idle when it began; {}.\n", results.cpus, results.idle_cpus,
                     results.options.repeats == 1
                         ? std::string("one run of each")
                         : fmt::format("medians of {}, and from which to which", results.options.repeats));
  if (std::ranges::any_of(counts, [&](int workers) { return lacks_cores(results, workers); })) {
    out +=
        "* fewer idle CPUs than workers: they take turns, and their times show that,\n"
        "  not what they would do on CPUs of their own. Steps and accuracies hold.\n";
  }
  if (std::ranges::any_of(results.batch, &BatchRun::diverged)) {
    out += "0.0 in 3: the rate was too high, and the loss no number any more.\n";
  }
  return out +
         "As good: within a point of the best. The fall in 3 is one of fixed epochs, of\nwhich a "
         "large batch makes fewer steps.\n";
}

}  // namespace

Status write_scaling(const ScalingResults& results, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return errno_error("make " + folder.native(), error.value());
  TRY(write(folder / "scaling.csv", csv(results)));
  TRY(write(folder / "scaling.svg", svg(results)));
  return write_events(results, folder / "events");
}

std::string scaling_text(const ScalingResults& results) {
  return throughput_text(results) + "\n" + target_text(results) + "\n" + batch_text(results) +
         "\n" + conclusions(results);
}

}  // namespace dtrain::engine
