// RunPlan: a worker's view of a training: what is trained, the data it read, and what it computes with. Whatever can be
// wrong with them is an error here, before anything starts.
#pragma once

#include <filesystem>
#include <optional>

#include "engine/data/dataset.h"
#include "engine/server/tunnels.h"
#include "engine/training/job_plan.h"

namespace dtrain::engine {

struct RunPlan : JobPlan {
  std::filesystem::path output_dir;
  Dataset train;
  std::optional<Dataset> test;
  std::filesystem::path start = {};  // of `checkpoint: {from}`; empty: none
  int gpus = 0;                      // of this process; 0: it computes on CPUs
  int threads = 1;                   // participants of this process: threads, each with a GPU if there are any
  int crew = 1;                      // threads that compute what the only participant computes: crew.h
  int64_t batch_at_once = 0;  // of a batch what participants share: the largest part where servers deal out parts
  Tunnels tunnels = {};       // for data-path: grpc

  Precision precision() const {
    if (spec.precision != Precision::Auto) return spec.precision;
    return gpus > 0 ? Precision::Bf16 : Precision::Fp32;
  }
  std::string instructions() const;  // that the steps are computed with: "cuda", or of a CPU the kernels' set
};

// Relative paths are of the working directory, which is the project. `gpus`: that this process may use.
Result<RunPlan> make_plan(EngineSpec spec, Place place, std::filesystem::path output_dir, int gpus = 0);

}  // namespace dtrain::engine
