// How fast whole trainings are, by the program itself on drawn digits and made-up text, beside the
// ceiling of the processor's multiply-add units, and beside PyTorch doing the same.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/bench/torch_peer.h"
#include "engine/bench/trainings.h"
#include "engine/models/model.h"
#include "schema/engine_spec.h"
#include "schema/result.h"

namespace dtrain::engine {

struct Workload {
  std::string name;
  ModelSpec model;
  int batch = 64;  // of all workers
  int workers = 1;
};
const std::vector<Workload>& step_workloads();

// Those whose names begin with one of these, or all if there are none.
bool is_asked_for(const Workload& workload, const std::vector<std::string>& names);
// InvalidArgument: none of them begins so.
Status check_names(const std::vector<std::string>& names, const std::vector<Workload>& known);

// Multiplications and additions of a step for one sample, forward and backward: those of products,
// convolutions and causal attention.
double operations_per_sample(const ModelSpec& model, const SampleShape& shape);

struct StepRate {
  Workload workload;
  int64_t rows_per_sample = 1;  // tokens of a sample
  double operations = 0;        // of a sample
  int threads = 1;              // of all workers, at which it was fastest
  double samples_per_second = 0, samples_per_second_of_one_thread = 0;
  double peak = 0;  // operations a second that as many threads can do
  int64_t parameters = 0, gradients = 0, state = 0,
          activations = 0;                             // bytes of the master's process
  std::optional<double> peer_samples_per_second = {};  // at its best
  TorchSetting peer_setting = {};

  double steps_per_second() const { return samples_per_second / workload.batch; }
  double operations_per_second() const { return samples_per_second * operations; }
};

struct StepOptions {
  std::string program;             // dtrain-engine
  std::vector<std::string> names;  // workloads that begin so; none: all
  int rounds = 3;
  double seconds = 2;  // of each training, about
  std::vector<std::string> torch_modes{std::begin(kTorchModes), std::end(kTorchModes)};  // on a GPU
};

// Medians of interleaved rounds, each thread count in turn; `said` hears of each workload as it is
// done.
Status bench_step(const StepOptions& options, const TorchPeer* peer,
                  const std::function<void(const StepRate&)>& said);

}  // namespace dtrain::engine
