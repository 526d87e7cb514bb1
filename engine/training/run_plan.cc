#include "engine/training/run_plan.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "engine/cpus.h"
#include "engine/kernels/kernels.h"

namespace dtrain::engine {

namespace {

// More than a processor's own cache holds, with their gradients.
constexpr int64_t kManyParameters = 256 * 1024;
// Columns of usual layers are not enough for more.
constexpr int kLargestCrew = 4;

int threads_of(const EngineSpec& spec, const Place& place) {
  switch (spec.strategy.kind) {
    case Strategy::Single:
    case Strategy::Mirrored:
    case Strategy::CentralStorage: {
      const int devices = spec.strategy.devices > 0 ? spec.strategy.devices : spec.threads;
      return devices > 0 ? devices : cpus();
    }
    case Strategy::MultiWorkerMirrored:
    case Strategy::ParameterServer:
    case Strategy::Pipeline:
    case Strategy::Tensor:
    case Strategy::Mesh:
      break;
  }
  if (spec.threads > 0) return spec.threads;
  // Without a count of its own a worker has OMP_NUM_THREADS from its cpus.
  const char* told = std::getenv("OMP_NUM_THREADS");
  const int threads = told == nullptr ? 1 : std::atoi(told);
  return place.alone() ? cpus() : std::clamp(threads, 1, cpus());
}

// Where a step is little beside the exchange of its gradients, a process that trains alone is one participant,
// whose crew its threads are. Beside others it isn't: each participant gets as much of the batch, whatever its
// crew.
int crew_of(const EngineSpec& spec, const Place& place, const Layout& layout, int threads) {
  const bool may = spec.strategy.kind == Strategy::Single ||
                   (spec.strategy.kind == Strategy::MultiWorkerMirrored && place.alone());
  if (!may || !std::holds_alternative<MlpSpec>(spec.model) || layout.size() < kManyParameters) return 1;
  return threads <= kLargestCrew ? threads : 1;
}

// Of those that are there.
Result<int> gpus_of(const EngineSpec& spec, int gpus) {
  if (gpus == 0) {
    if (spec.precision == Precision::Auto || spec.precision == Precision::Fp32) return 0;
    return Error{Code::InvalidArgument, "precision: CPUs compute with fp32", "gpus: 1 below resources"};
  }
  if (spec.strategy.devices > gpus) {
    return Error{Code::InvalidArgument,
                 fmt::format("devices: {} GPUs are asked for, and there are {}", spec.strategy.devices, gpus),
                 "as many gpus below resources"};
  }
  if (spec.strategy.kind == Strategy::Single) return 1;
  return spec.strategy.devices > 0 ? spec.strategy.devices : gpus;
}

// Parameters and their gradients at least, where it is not spread over several processes.
Status check_memory(const RunPlan& plan) {
  const Strategy kind = plan.spec.strategy.kind;
  const bool is_split = kind == Strategy::Pipeline || kind == Strategy::Tensor || kind == Strategy::Mesh;
  if (is_split || plan.gpus > 0) return ok();
  const double needed = 2.0 * sizeof(float) * static_cast<double>(plan.layout.size());
  const double there = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (needed <= there) return ok();
  return Error{Code::InvalidArgument,
               fmt::format("the model has {} parameters, which take {:.0f} GB with their gradients, and this host has {:.0f} GB",
                           plan.layout.size(), needed / 1e9, there / 1e9),
               "a smaller model, or one that several hosts share, such as by 'strategy: tensor'"};
}

}  // namespace

std::string RunPlan::instructions() const { return gpus > 0 ? "cuda" : kernels<float>().isa; }

Result<RunPlan> make_plan(EngineSpec spec, Place place, std::filesystem::path output_dir, int gpus) {
  const auto* gpt = std::get_if<GptSpec>(&spec.model);
  DatasetOptions options;
  if (gpt != nullptr) options = {.part = Part::Train, .context = gpt->context, .vocabulary = gpt->vocabulary};
  TRY(Dataset train, Dataset::open(spec.train_data, options));
  std::optional<Dataset> test;
  if (!spec.test_data.empty()) {
    TRY(test, Dataset::open_like(train, spec.test_data));
  }
  const DataFacts facts = facts_of(train, test);
  TRY(JobPlan job, make_job_plan(std::move(spec), std::move(place), facts));
  RunPlan plan{std::move(job), std::move(output_dir), std::move(train), std::move(test)};
  const EngineSpec& s = plan.spec;
  plan.start = s.checkpoint_from;
  TRY(plan.gpus, gpus_of(s, gpus));
  plan.threads = plan.gpus > 0 ? plan.gpus : threads_of(s, plan.place);
  if (plan.gpus == 0) plan.crew = crew_of(s, plan.place, plan.layout, plan.threads);
  plan.threads /= plan.crew;
  TRY(check_memory(plan));
  const int64_t parts = plan.deals_parts() ? static_cast<int64_t>(plan.place.workers.size()) : 1;
  plan.batch_at_once = (plan.batch + parts - 1) / parts;
  return plan;
}

}  // namespace dtrain::engine
