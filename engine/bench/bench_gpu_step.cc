#include "engine/bench/bench_gpu_step.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "engine/bench/ceilings.h"
#include "engine/data/digits.h"
#include "engine/random.h"

namespace dtrain::engine {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kTokens = 20'000'000;

// Made up, all as frequent. Of a text some are far more so, and the gradients of these take longer to sum.
Status write_tokens(const fs::path& path, int vocabulary) {
  RandomRow random(1, 0, 0);
  std::vector<uint16_t> tokens(kTokens);
  for (uint16_t& each : tokens) each = static_cast<uint16_t>(random.below(static_cast<uint32_t>(vocabulary)));
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(tokens.data()), static_cast<std::streamsize>(tokens.size() * sizeof(uint16_t)));
  return file.flush() ? ok() : Status(errno_error("write " + path.native(), errno));
}

class GpuContest {
 public:
  GpuContest(const StepOptions& options, const Workload& workload, const TorchPeer* peer, const fs::path& data)
      : options_(options), workload_(workload), peer_(peer) {
    const bool has_text = std::holds_alternative<GptSpec>(workload.model);
    spec_.model = workload.model;
    spec_.train_data = data / (has_text ? "tokens.u16.bin" : "train");
    spec_.batch = workload.batch;
    spec_.optimizer.kind = has_text ? Optimizer::AdamW : Optimizer::Sgd;
    spec_.optimizer.learning_rate = has_text ? 1e-4 : 0.01;
  }

  Status calibrate() {
    for (int64_t steps = 10;; steps *= 4) {
      TRY(const double seconds, train(steps));
      if (seconds < options_.seconds / 10 && steps < 1'000'000) continue;
      steps_ = std::max<int64_t>(10, static_cast<int64_t>(static_cast<double>(steps) * options_.seconds / seconds));
      return ok();
    }
  }

  Status round() {
    TRY(const double seconds, train(steps_));
    own_.push_back(static_cast<double>(steps_ * workload_.batch) / seconds);
    tell("dtrain", own_.back());
    if (peer_ == nullptr) return ok();
    for (const std::string& mode : options_.torch_modes) {
      if (failures_.contains(mode)) continue;
      const auto rate = peer_->gpu_samples_per_second(spec_, mode, options_.seconds);
      if (rate.ok()) {
        rates_[mode].push_back(*rate);
        tell("torch, " + mode, *rate);
      } else {
        failures_[mode] = rate.error().message + ": " + rate.error().hint;
        rates_.erase(mode);
      }
    }
    return ok();
  }

  GpuStepRate result() const {
    const auto* gpt = std::get_if<GptSpec>(&workload_.model);
    const SampleShape shape = gpt == nullptr ? SampleShape{.channels = 1, .height = 28, .width = 28, .classes = 10}
                                             : SampleShape{.context = gpt->context, .vocabulary = gpt->vocabulary};
    GpuStepRate rate{.workload = workload_,
                     .rows_per_sample = std::max<int64_t>(1, shape.context),
                     .operations = operations_per_sample(workload_.model, shape),
                     .samples_per_second = median(own_),
                     .parameters = record_.parameters,
                     .gradients = record_.gradients,
                     .state = record_.state,
                     .activations = record_.activations,
                     .peer_failures = failures_};
    for (const auto& [mode, rates] : rates_) rate.peer_samples_per_second[mode] = median(rates);
    return rate;
  }

 private:
  // As soon as it is known: PyTorch may compile for minutes.
  void tell(const std::string& whose, double samples_per_second) const {
    fmt::print(stderr, "{}: {} {:.0f} samples/s\n", workload_.name, whose, samples_per_second);
  }
  // Seconds of so many steps, after as many others.
  Result<double> train(int64_t steps) {
    EngineSpec spec = spec_;
    spec.steps = spec.checkpoint_steps = 2 * steps;
    spec.epoch_samples = steps * spec.batch;
    const char* devices = std::getenv("CUDA_VISIBLE_DEVICES");
    TRY(record_, run_training(options_.program, spec, 1,
                              {{"CUDA_VISIBLE_DEVICES", devices == nullptr || *devices == '\0' ? "0" : devices}}));
    double seconds = 0;
    for (const MeasuredInterval& each : record_.intervals) seconds += each.step > steps ? each.seconds : 0;
    if (seconds > 0) return seconds;
    return Error{Code::Internal, "a training told nothing of its second half", ""};
  }

  const StepOptions& options_;
  const Workload workload_;
  const TorchPeer* const peer_;
  EngineSpec spec_;
  int64_t steps_ = 0;
  std::vector<double> own_;
  std::map<std::string, std::vector<double>> rates_;
  std::map<std::string, std::string> failures_;
  TrainingRecord record_;
};

}  // namespace

const std::vector<Workload>& gpu_step_workloads() {
  static const std::vector<Workload> all{
      {"mlp-128", MlpSpec{{128}}, 64},
      {"mlp-512", MlpSpec{{512, 512}}, 128},
      {"lenet", LenetSpec{}, 64},
      {"gpt-124M", GptSpec{.layers = 12, .heads = 12, .width = 768, .context = 1024, .vocabulary = 50257}, 64},
  };
  return all;
}

Status bench_gpu_step(const StepOptions& options, const TorchPeer* peer,
                      const std::function<void(const GpuStepRate&)>& said) {
  TRY(check_names(options.names, gpu_step_workloads()));
  TRY(const ScratchFolder scratch, ScratchFolder::create());
  TRY(generate_digits(scratch.path(), {.train = 20'000, .test = 100, .seed = 1}));
  for (const Workload& workload : gpu_step_workloads()) {
    if (!is_asked_for(workload, options.names)) continue;
    if (const auto* gpt = std::get_if<GptSpec>(&workload.model)) {
      TRY(write_tokens(scratch.path() / "tokens.u16.bin", gpt->vocabulary));
    }
    GpuContest contest(options, workload, peer, scratch.path());
    TRY(contest.calibrate());
    for (int round = 0; round < options.rounds; ++round) TRY(contest.round());
    said(contest.result());
  }
  return ok();
}

}  // namespace dtrain::engine
