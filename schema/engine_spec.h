// EngineSpec: what `engine:` of an experiment asks the built-in engine for, with every default filled
// in. Read from YAML by engine_read.h; it reaches dtrain-engine as JSON in the variable DTRAIN_ENGINE.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "schema/result.h"

namespace dtrain {

inline constexpr const char* kEngineVariable = "DTRAIN_ENGINE";
// A folder in OUTPUT_DIR, with one of this name and a number of steps for each checkpoint.
inline constexpr const char* kEngineCheckpoints = "checkpoints";
inline constexpr const char* kEngineCheckpointPrefix = "step-";
// What dtrain-engine exits with when it was asked for what can't be done (data it can't read, a shape
// that does not fit its checkpoint): starting it again would change nothing.
inline constexpr int kEngineRefusedCode = 2;

// Fully connected layers with ReLU between them: 784 -> hidden... -> classes.
struct MlpSpec {
  std::vector<int> hidden = {128};
  bool operator==(const MlpSpec&) const = default;
};
// conv, ReLU, 2x2 max-pool, twice, then fully connected layers with ReLU.
struct LenetSpec {
  int kernel = 5;
  std::vector<int> channels = {6, 16};
  std::vector<int> hidden = {120, 84};
  bool padding = true;            // zeros around the image, so that the first convolution keeps its size
  std::vector<int> pool = {2, 2};  // after each convolution the largest of so many by so many; 1: none
  bool operator==(const LenetSpec&) const = default;
};
// The GPT-2 architecture, embeddings tied with the classifier.
struct GptSpec {
  int layers = 4;
  int heads = 4;
  int width = 128;
  int context = 128;
  int vocabulary = 0;  // 0: from the data (256 for bytes)
  bool operator==(const GptSpec&) const = default;
};
using ModelSpec = std::variant<MlpSpec, LenetSpec, GptSpec>;

enum class Strategy {
  Single,               // one process, `threads` threads
  Mirrored,             // one process drives several devices, each with all parameters
  MultiWorkerMirrored,  // one process a worker, gradients summed by all-reduce; YAML: also allreduce
  CentralStorage,       // parameters in one place, devices of one process pull and push
  ParameterServer,
  Pipeline,  // layers spread over the workers, 1F1B
  Tensor,    // each layer spread over the workers
  Mesh,      // groups of `mesh_model` workers split the layers, mesh_data groups split the batch
};
enum class ServerMode { Async, Ssp, Sync };
enum class DataPath { Raw, Grpc };

struct StrategySpec {
  Strategy kind = Strategy::Single;
  int devices = 0;         // mirrored, central-storage; 0: one a core
  ServerMode mode = ServerMode::Async;
  int staleness = 8;       // ssp: how many pushes the fastest worker may be ahead of the slowest
  int apply_every = 1;     // parts of batches whose gradients a worker sums before it pushes
  int backup = 0;          // sync: the slowest so many are not waited for
  DataPath data_path = DataPath::Raw;
  int micro_batches = 4;   // pipeline
  int mesh_data = 1, mesh_model = 1;
  double bucket_mb = 0;    // copies of the model: gradients that are summed at once while backward goes on; 0: as fits
  bool operator==(const StrategySpec&) const = default;
};

enum class Optimizer { Sgd, Adam, AdamW };
struct OptimizerSpec {
  Optimizer kind = Optimizer::Sgd;
  double learning_rate = 0.1;
  double momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double weight_decay = 0;  // sgd, adam: L2, as in PyTorch; adamw: decoupled
  bool operator==(const OptimizerSpec&) const = default;
};

// What a GPU computes with; sums, parameters and state are fp32 always.
enum class Precision {
  Auto,  // bf16 on a GPU
  Fp32,
  Tf32,  // products round what goes in to 10 bits of mantissa
  Bf16,  // activations and the weights that products read
};

enum class Schedule { Constant, Step, Cosine, Linear };
struct ScheduleSpec {
  Schedule kind = Schedule::Constant;
  double warm_up_epochs = 0;  // from 0 to the learning rate, linearly
  int64_t warm_up_steps = 0;  // if not 0, instead of warm_up_epochs
  double every_epochs = 1;    // step
  int64_t every_steps = 0;    // step; if not 0, instead of epochs
  double factor = 0.1;        // step
  double final_fraction = 0;  // cosine, linear: of the learning rate, at the end
  int scale_with_batch = 0;   // not 0: the learning rate is for this batch, and grows with the global one
  bool operator==(const ScheduleSpec&) const = default;
};

struct EngineSpec {
  ModelSpec model = MlpSpec{};
  std::string train_data;  // a path as written: relative to the project or below /data
  std::string test_data;   // empty: none
  StrategySpec strategy;
  int batch = 64;
  bool weak_scaling = false;  // the batch is that of each worker, not of all
  int micro_batch = 0;        // samples that a thread or GPU works on at once; 0: all of its share
  Precision precision = Precision::Auto;
  double epochs = 1;
  int64_t steps = 0;          // if not 0, instead of epochs
  int64_t epoch_samples = 0;  // a virtual epoch; 0: the data set
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  double clip_norm = 0;  // 0: none
  int64_t checkpoint_steps = 0;   // 0: by epochs
  double checkpoint_epochs = 1;
  int checkpoint_keep = 3;
  std::string checkpoint_from;  // a path as those of data: what a training starts from; empty: nothing
  uint64_t seed = 42;
  int threads = 0;             // a process; 0: its cpus
  double deadline_seconds = 30;  // of every wait for another process
  bool operator==(const EngineSpec&) const = default;
};

std::string to_json(const EngineSpec& spec);
// What is the same for all processes of a training: where files lie differs from host to host, and from launch to
// launch.
EngineSpec without_paths(EngineSpec spec);
// What is left out has its default. InvalidArgument names the key that is unknown, of another type,
// out of its range (engine_limits.h) or at odds with another (check_engine).
Result<EngineSpec> engine_spec_from_json(std::string_view text);

}  // namespace dtrain
