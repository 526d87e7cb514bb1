#include "schema/engine_check.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain {

namespace {

using Found = std::vector<EngineProblem>;

void check_model(const EngineSpec& spec, Found& found) {
  const auto* gpt = std::get_if<GptSpec>(&spec.model);
  if (gpt == nullptr || gpt->width % gpt->heads == 0) return;
  found.push_back({"model.gpt.heads",
                   fmt::format("{} heads can't share a width of {} evenly; take a number of heads "
                               "that divides it",
                               gpt->heads, gpt->width)});
}

// The hidden layers, which the strategies spread.
const std::vector<int>* hidden_of(const ModelSpec& model) {
  if (const auto* mlp = std::get_if<MlpSpec>(&model)) return &mlp->hidden;
  if (const auto* lenet = std::get_if<LenetSpec>(&model)) return &lenet->hidden;
  return nullptr;
}

int layers_of(const ModelSpec& model) {
  if (const auto* gpt = std::get_if<GptSpec>(&model)) return gpt->layers;
  const int dense = static_cast<int>(hidden_of(model)->size()) + 1;
  const auto* lenet = std::get_if<LenetSpec>(&model);
  return dense + (lenet != nullptr ? static_cast<int>(lenet->channels.size()) : 0);
}

// Those that a model is spread over: workers, or where they have GPUs those.
struct Devices {
  explicit Devices(const EngineRoles& roles)
      : count(roles.workers * std::max(1, roles.gpus)), name(roles.gpus > 0 ? "GPUs" : "workers") {}
  int count;
  std::string_view name;
};

// Each layer is cut into `parts` equal ones.
void check_parts(const EngineSpec& spec, int parts, std::string_view name, Found& found) {
  if (const auto* gpt = std::get_if<GptSpec>(&spec.model)) {
    if (gpt->heads % parts != 0) {
      found.push_back({"model.gpt.heads",
                       fmt::format("{} heads can't be spread evenly over {} {}; take a number "
                                   "of {} that divides it",
                                   gpt->heads, parts, name, name)});
    }
    if (gpt->width % parts != 0) {
      found.push_back({"model.gpt.width",
                       fmt::format("a width of {} can't be spread evenly over {} {}; take a "
                                   "number of {} that divides it",
                                   gpt->width, parts, name, name)});
    }
    return;
  }
  const bool lenet = std::holds_alternative<LenetSpec>(spec.model);
  for (const int width : *hidden_of(spec.model)) {
    if (width % parts == 0) continue;
    found.push_back(
        {lenet ? "model.lenet.hidden" : "model.mlp.hidden",
         fmt::format("a hidden layer of {} can't be spread evenly over {} {}; take "
                     "a number of {} that divides it",
                     width, parts, name, name)});
    return;
  }
}

void check_server_counts(const EngineSpec& spec, const EngineRoles& roles, Found& found) {
  if (spec.strategy.kind != Strategy::ParameterServer) {
    if (roles.servers == 0) return;
    found.push_back({"distributed.ps",
                     fmt::format("the strategy {} has no parameter servers; remove ps, or write "
                                 "'strategy: parameter-server'",
                                 to_string(spec.strategy.kind))});
    return;
  }
  if (roles.servers == 0) {
    found.push_back(
        {"strategy",
         "parameter-server needs parameter servers; write 'distributed: {worker: 2, ps: "
         "1}' below engine"});
  }
  const int fewest = roles.least_workers > 0 ? roles.least_workers : roles.workers;
  if (spec.strategy.backup >= fewest) {
    found.push_back({"strategy.parameter-server.backup",
                     fmt::format("{} of {} workers can't be left out of each step; take at most {}{}",
                                 spec.strategy.backup, fewest, fewest - 1,
                                 roles.least_workers > 0 ? ", or a larger elastic.min" : "")});
  }
}

void check_worker_counts(const EngineSpec& spec, const EngineRoles& roles, Found& found) {
  const StrategySpec& strategy = spec.strategy;
  const Devices devices(roles);
  switch (strategy.kind) {
    case Strategy::Single:
    case Strategy::Mirrored:
    case Strategy::CentralStorage:
      if (roles.workers == 1) return;
      found.push_back(
          {"strategy",
           fmt::format("{} is one process, and these are {} workers; write 'worker: 1', "
                       "or 'strategy: multi-worker-mirrored'",
                       to_string(strategy.kind), roles.workers)});
      return;
    case Strategy::Pipeline:
      if (devices.count <= layers_of(spec.model)) return;
      found.push_back(
          {"strategy", fmt::format("{} {} are {} stages, and the model has {} layers; take at most {} {}",
                                   devices.count, devices.name, devices.count, layers_of(spec.model),
                                   layers_of(spec.model), devices.name)});
      return;
    case Strategy::Tensor:
      check_parts(spec, devices.count, devices.name, found);
      return;
    case Strategy::Mesh:
      if (strategy.mesh_data * strategy.mesh_model != devices.count) {
        found.push_back({"strategy.mesh", fmt::format("a mesh of {} x {} needs {} {}, and there {} {}",
                                                      strategy.mesh_data, strategy.mesh_model,
                                                      strategy.mesh_data * strategy.mesh_model, devices.name,
                                                      devices.count == 1 ? "is" : "are", devices.count)});
      } else {
        check_parts(spec, strategy.mesh_model, devices.name, found);
      }
      return;
    case Strategy::MultiWorkerMirrored:
    case Strategy::ParameterServer:
      return;
  }
}

// Where each worker has a share of its own, or a part of the model, another number of them is another training.
void check_elastic(const EngineSpec& spec, const EngineRoles& roles, Found& found) {
  if (roles.least_workers == 0) return;
  const StrategySpec& strategy = spec.strategy;
  const bool servers = strategy.kind == Strategy::ParameterServer;
  if (servers && strategy.mode != ServerMode::Sync) {
    found.push_back({"distributed.elastic", "the others of async and ssp go on without a worker that is lost, and each has its own share "
                                            "of the data; remove elastic, or write 'mode: sync'"});
  } else if (strategy.kind == Strategy::Pipeline || strategy.kind == Strategy::Tensor || strategy.kind == Strategy::Mesh) {
    found.push_back({"distributed.elastic", fmt::format("{} is spread over all of its workers; remove elastic, or write 'strategy: "
                                                        "multi-worker-mirrored'",
                                                        to_string(strategy.kind))});
  } else if (spec.weak_scaling) {
    found.push_back({"scaling", "with another number of workers the batch would be another one; write 'scaling: strong'"});
  }
}

void check_gpus(const EngineSpec& spec, const EngineRoles& roles, Found& found) {
  if (roles.gpus == 0 && roles.most_gpus > 0) {
    found.push_back({"distributed", "some workers have GPUs and others none; write the same 'gpus' for all of them"});
    return;
  }
  if (roles.gpus == 0) {
    if (spec.precision == Precision::Auto || spec.precision == Precision::Fp32) return;
    found.push_back({"precision", "CPUs compute with fp32; write 'gpus: 1' below resources"});
    return;
  }
  const Strategy kind = spec.strategy.kind;
  if (kind == Strategy::Single && roles.gpus > 1) {
    found.push_back({"strategy", fmt::format("single uses one GPU of the {}; write 'strategy: mirrored'", roles.gpus)});
  }
  const bool is_split = kind == Strategy::Pipeline || kind == Strategy::Tensor || kind == Strategy::Mesh;
  if (is_split && roles.gpus != roles.most_gpus) {
    found.push_back({"distributed", fmt::format("{} is spread over GPUs, as many in each worker; write the same 'gpus' for "
                                                "all of them",
                                                to_string(kind))});
  }
}

// How many processes share the batch.
int batch_parts(const EngineSpec& spec, const EngineRoles& roles) {
  switch (spec.strategy.kind) {
    case Strategy::MultiWorkerMirrored:
    case Strategy::ParameterServer:
      return roles.workers;
    case Strategy::Mesh:
      return spec.strategy.mesh_data;
    case Strategy::Single:
    case Strategy::Mirrored:
    case Strategy::CentralStorage:
    case Strategy::Pipeline:
    case Strategy::Tensor:
      return 1;
  }
  return 1;
}

}  // namespace

std::vector<EngineProblem> check_engine(const EngineSpec& spec) {
  Found found;
  check_model(spec, found);
  if (spec.optimizer.nesterov && spec.optimizer.momentum == 0) {
    found.push_back(
        {"optimizer.sgd.nesterov", "this is a kind of momentum; write 'momentum: 0.9' beside it"});
  }
  if (spec.strategy.kind == Strategy::Pipeline && spec.strategy.micro_batches > spec.batch) {
    found.push_back({"strategy.pipeline.micro-batches",
                     fmt::format("a batch of {} can't be cut into {}; take at most {}", spec.batch,
                                 spec.strategy.micro_batches, spec.batch)});
  }
  if (spec.strategy.kind == Strategy::Pipeline && spec.micro_batch > 0) {
    found.push_back({"micro-batch", "a stage of a pipeline works on its micro-batches as they are; write "
                                    "'strategy: {pipeline: {micro-batches: 8}}' for smaller ones"});
  }
  return found;
}

std::vector<EngineProblem> check_engine_roles(const EngineSpec& spec, const EngineRoles& roles) {
  Found found;
  check_server_counts(spec, roles, found);
  check_worker_counts(spec, roles, found);
  check_elastic(spec, roles, found);
  check_gpus(spec, roles, found);
  const int parts = batch_parts(spec, roles);
  if (!spec.weak_scaling && spec.batch < parts) {
    found.push_back(
        {"batch", fmt::format("a batch of {} leaves some of {} workers with nothing; take {} or more{}", spec.batch, parts, parts,
                              roles.least_workers > 0 ? "" : ", or write 'scaling: weak'")});
  }
  return found;
}

std::string_view to_string(Strategy strategy) {
  switch (strategy) {
    case Strategy::Single:
      return "single";
    case Strategy::Mirrored:
      return "mirrored";
    case Strategy::MultiWorkerMirrored:
      return "multi-worker-mirrored";
    case Strategy::CentralStorage:
      return "central-storage";
    case Strategy::ParameterServer:
      return "parameter-server";
    case Strategy::Pipeline:
      return "pipeline";
    case Strategy::Tensor:
      return "tensor";
    case Strategy::Mesh:
      return "mesh";
  }
  return "single";
}

}  // namespace dtrain
