// How fast whole trainings are on one GPU, by the program itself, beside PyTorch doing the same: eager, compiled,
// and compiled into CUDA graphs, in bf16 by autocast, with a fused optimiser and a vocabulary of whole tiles.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/bench/bench_step.h"

namespace dtrain::engine {

const std::vector<Workload>& gpu_step_workloads();

struct GpuStepRate {
  Workload workload;
  int64_t rows_per_sample = 1;
  double operations = 0;  // of a sample
  double samples_per_second = 0;
  int64_t parameters = 0, gradients = 0, state = 0, activations = 0;  // bytes
  std::map<std::string, double> peer_samples_per_second = {};        // by how it runs; those that failed are not in it
  std::map<std::string, std::string> peer_failures = {};

  double operations_per_second() const { return samples_per_second * operations; }
};

// Medians of interleaved rounds; the first steps, in which plans are made, are not counted. `said` hears of each
// workload as it is done.
Status bench_gpu_step(const StepOptions& options, const TorchPeer* peer,
                      const std::function<void(const GpuStepRate&)>& said);

}  // namespace dtrain::engine
