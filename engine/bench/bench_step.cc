#include "engine/bench/bench_step.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include "engine/bench/ceilings.h"
#include "engine/cpus.h"
#include "engine/data/digits.h"
#include "engine/models/lenet.h"
#include "engine/random.h"

namespace dtrain::engine {

namespace fs = std::filesystem;

namespace {

constexpr int kVocabulary = 65;
constexpr int64_t kTextBytes = 1'000'000;

// Products of a chain of layers: forward, and backward twice as many, but none for the input's
// gradient.
double dense_operations(const std::vector<int64_t>& widths, bool from_data) {
  double operations = 0;
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    operations +=
        (i == 0 && from_data ? 4.0 : 6.0) * static_cast<double>(widths[i] * widths[i + 1]);
  }
  return operations;
}

double operations_of(const MlpSpec& mlp, const SampleShape& shape) {
  std::vector<int64_t> widths{shape.pixels()};
  widths.insert(widths.end(), mlp.hidden.begin(), mlp.hidden.end());
  widths.push_back(shape.classes);
  return dense_operations(widths, true);
}

double operations_of(const LenetSpec& lenet, const SampleShape& shape) {
  double operations = dense_operations(lenet_widths(lenet, shape), false);
  for (const ConvShape& conv : lenet_convolutions(lenet, shape)) {
    const int64_t products = conv.out_channels * conv.in_channels * conv.kernel * conv.kernel *
                             conv.out_height() * conv.out_width();
    // Only the first takes its input from the data.
    operations += (conv.dout_padding == 0 ? 4.0 : 6.0) * static_cast<double>(products);
  }
  return operations;
}

double operations_of(const GptSpec& gpt, const SampleShape& shape) {
  const double width = gpt.width, context = static_cast<double>(shape.context);
  const double weights =
      gpt.layers * 12 * width * width + static_cast<double>(shape.vocabulary) * width;
  // Scores and what is attended: each position sees half of the others.
  const double attention = gpt.layers * 6 * width * context;
  return context * (6 * weights + attention);
}

SampleShape shape_for(const ModelSpec& model) {
  const auto* gpt = std::get_if<GptSpec>(&model);
  if (gpt == nullptr) return {.channels = 1, .height = 28, .width = 28, .classes = 10};
  return {.context = gpt->context, .vocabulary = gpt->vocabulary};
}

Status write_text(const fs::path& path) {
  RandomRow random(1, 0, 0);
  std::string text(kTextBytes, ' ');
  for (char& each : text) each = static_cast<char>(random.below(kVocabulary));
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  return file.flush() ? ok() : Status(errno_error("write " + path.native(), errno));
}

// One workload while its rounds go by. Thread counts are of all workers together.
class Contest {
 public:
  Contest(const StepOptions& options, const Workload& workload, const TorchPeer* peer,
          const fs::path& data)
      : options_(options), workload_(workload), peer_(peer), shape_(shape_for(workload.model)) {
    spec_.model = workload.model;
    spec_.train_data =
        data / (std::holds_alternative<GptSpec>(workload.model) ? "text.txt" : "train");
    spec_.batch = workload.batch;
    spec_.optimizer.learning_rate = 0.01;
    spec_.strategy.kind = workload.workers == 1 ? Strategy::Single : Strategy::MultiWorkerMirrored;
    for (int threads = workload.workers; threads < cpus(); threads *= 2) counts_.insert(threads);
    counts_.insert(std::max(workload.workers, cpus() / workload.workers * workload.workers));
  }

  // How many steps take about as long as is wanted; and what the peer is best at.
  Status calibrate() {
    int64_t steps = 20;
    while (true) {
      set_steps(steps);
      TRY(record_, run_training(options_.program, at(*counts_.begin()), workload_.workers));
      const double seconds = record_.seconds();
      if (seconds >= options_.seconds / 20 || steps > 1'000'000) {
        set_steps(std::max<int64_t>(
            20, static_cast<int64_t>(static_cast<double>(steps) * options_.seconds / seconds)));
        return choose_candidates();
      }
      steps *= 10;
    }
  }

  Status round() {
    for (const int threads : counts_) {
      peaks_[threads].push_back(peak_operations(std::min(threads, cpus())));
      TRY(record_, run_training(options_.program, at(threads), workload_.workers));
      own_[threads].push_back(record_.samples_per_second());
    }
    for (Candidate& candidate : candidates_) {
      TRY(candidate.rates.emplace_back(), peer_rate(candidate.setting, options_.seconds));
    }
    return ok();
  }

  StepRate result() const {
    StepRate rate{.workload = workload_,
                  .rows_per_sample = std::max<int64_t>(1, shape_.context),
                  .operations = operations_per_sample(workload_.model, shape_)};
    std::tie(rate.threads, rate.samples_per_second) = best(own_);
    rate.samples_per_second_of_one_thread = median(own_.begin()->second);
    rate.peak = median(peaks_.at(rate.threads));
    rate.parameters = record_.parameters;
    rate.gradients = record_.gradients;
    rate.state = record_.state;
    rate.activations = record_.activations;
    for (const Candidate& each : candidates_) {
      const double found = median(each.rates);
      if (rate.peer_samples_per_second && found <= *rate.peer_samples_per_second) continue;
      rate.peer_samples_per_second = found;
      rate.peer_setting = each.setting;
    }
    return rate;
  }

 private:
  using Rates = std::map<int, std::vector<double>>;  // by threads
  // A setting of the peer's that may be its best.
  struct Candidate {
    TorchSetting setting;
    std::vector<double> rates;
  };
  static constexpr size_t kCandidates = 3;

  Result<double> peer_rate(const TorchSetting& setting, double seconds) const {
    return peer_->samples_per_second(spec_, setting, workload_.workers, seconds);
  }

  // Those that a short look at all of them finds best.
  Status choose_candidates() {
    if (peer_ == nullptr) return ok();
    std::vector<std::pair<double, TorchSetting>> found;
    for (const TorchSetting& setting :
         torch_settings(cpus(), workload_.workers, peer_->has_own_blas())) {
      TRY(const double rate, peer_rate(setting, options_.seconds / 2));
      found.emplace_back(rate, setting);
    }
    std::ranges::stable_sort(found, [](const auto& a, const auto& b) { return a.first > b.first; });
    if (found.size() > kCandidates) found.resize(kCandidates);
    for (const auto& [rate, setting] : found) candidates_.push_back({setting, {}});
    return ok();
  }

  static std::pair<int, double> best(const Rates& rates) {
    std::pair<int, double> found{0, 0};
    for (const auto& [threads, values] : rates) {
      const double rate = median(values);
      if (rate > found.second) found = {threads, rate};
    }
    return found;
  }

  // One line at the end, of all steps.
  void set_steps(int64_t steps) {
    spec_.steps = spec_.checkpoint_steps = steps;
    spec_.epoch_samples = steps * spec_.batch;
  }
  EngineSpec at(int threads) const {
    EngineSpec spec = spec_;
    spec.threads = std::max(1, threads / workload_.workers);
    return spec;
  }

  const StepOptions& options_;
  const Workload workload_;
  const TorchPeer* const peer_;
  const SampleShape shape_;
  EngineSpec spec_;
  std::set<int> counts_;
  Rates own_, peaks_;
  std::vector<Candidate> candidates_;
  TrainingRecord record_;
};

}  // namespace

bool is_asked_for(const Workload& workload, const std::vector<std::string>& names) {
  return names.empty() || std::ranges::any_of(names, [&](const std::string& name) {
           return workload.name.starts_with(name);
         });
}

Status check_names(const std::vector<std::string>& names, const std::vector<Workload>& known) {
  for (const std::string& name : names) {
    if (std::ranges::any_of(known, [&](const Workload& each) { return each.name.starts_with(name); })) continue;
    std::string all;
    for (const Workload& each : known) all += (all.empty() ? "" : ", ") + each.name;
    return Error{Code::InvalidArgument, fmt::format("no workload begins with {}", name), "there are " + all};
  }
  return ok();
}

const std::vector<Workload>& step_workloads() {
  static const std::vector<Workload> all{
      {"mlp-128", MlpSpec{{128}}, 64},
      {"mlp-128-two-workers", MlpSpec{{128}}, 64, 2},
      {"mlp-128-wide-batch", MlpSpec{{128}}, 128},
      {"mlp-128-wide-batch-two-workers", MlpSpec{{128}}, 128, 2},
      {"mlp-512", MlpSpec{{512, 512}}, 128},
      {"lenet", LenetSpec{}, 64},
      // As PyTorch's own example for MNIST, but for its dropout.
      {"cnn", LenetSpec{.kernel = 3, .channels = {32, 64}, .hidden = {128}, .padding = false, .pool = {1, 2}}, 64},
      {"gpt-0.81M",
       GptSpec{.layers = 4, .heads = 4, .width = 128, .context = 64, .vocabulary = kVocabulary},
       12},
      {"gpt-4.84M",
       GptSpec{.layers = 6, .heads = 8, .width = 256, .context = 128, .vocabulary = 256}, 8},
  };
  return all;
}

double operations_per_sample(const ModelSpec& model, const SampleShape& shape) {
  return std::visit([&](const auto& spec) { return operations_of(spec, shape); }, model);
}

Status bench_step(const StepOptions& options, const TorchPeer* peer,
                  const std::function<void(const StepRate&)>& said) {
  TRY(check_names(options.names, step_workloads()));
  TRY(const ScratchFolder scratch, ScratchFolder::create());
  TRY(generate_digits(scratch.path(), {.train = 20'000, .test = 100, .seed = 1}));
  TRY(write_text(scratch.path() / "text.txt"));
  for (const Workload& workload : step_workloads()) {
    if (!is_asked_for(workload, options.names)) continue;
    Contest contest(options, workload, peer, scratch.path());
    TRY(contest.calibrate());
    for (int round = 0; round < options.rounds; ++round) TRY(contest.round());
    said(contest.result());
  }
  return ok();
}

}  // namespace dtrain::engine
