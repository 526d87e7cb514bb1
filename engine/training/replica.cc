#include "engine/training/replica.h"

#include <sys/signalfd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "engine/server/server.h"
#include "engine/strategies/all_reduce.h"
#include "engine/strategies/assemble.h"
#include "engine/strategies/parameter_server.h"
#include "engine/strategies/split_model.h"
#include "engine/training/run_plan.h"
#include "engine/training/training.h"
#include "schema/engine_check.h"
#include "schema/fd.h"

namespace dtrain::engine {

namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Status serve(const RunPlan& plan) {
  // Before any thread: blocked, a signal is a descriptor that becomes readable.
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  if (sigprocmask(SIG_BLOCK, &ending, nullptr) != 0) return errno_error("block signals", errno);
  const Fd signals(::signalfd(-1, &ending, SFD_CLOEXEC));
  if (!signals) return errno_error("wait for signals", errno);
  const int64_t world = static_cast<int64_t>(plan.place.workers.size()) * plan.threads;
  ServerConfig config{.index = plan.place.index,
                      .servers = plan.place.ps,
                      .workers = plan.place.workers,
                      .experiment = variable("EXPERIMENT_ID"),
                      .directory = (plan.output_dir / "ps-state").string(),
                      .spec = plan.spec,
                      .leaves = static_cast<int>(leaf_count(world))};
  TRY(auto server, Server::open(config, plan.layout));
  Tunnels::Held tunnel;
  if (plan.spec.strategy.data_path == DataPath::Grpc) {
    TRY(tunnel, plan.tunnels.open_exit(plan.place.address(), server->local_address()));
  }
  fmt::print("serving at {}\n", plan.place.address());
  std::fflush(stdout);
  return server->run(signals.get());
}

// What this process was given. The runner names none to a replica that asked for none.
Result<int> visible_gpus(const Gpus* gpus) {
  if (variable("CUDA_VISIBLE_DEVICES").empty()) return 0;
  if (gpus == nullptr) {
    return Error{Code::InvalidArgument, "this dtrain-engine was built without GPUs",
                 "cmake --preset cuda, or no gpus: below resources"};
  }
  TRY(const int count, gpus->count());
  if (count > 0) return count;
  return Error{Code::FailedPrecondition,
               fmt::format("CUDA_VISIBLE_DEVICES={} names no GPU that is here", variable("CUDA_VISIBLE_DEVICES")), ""};
}

Status work_on_gpus(const RunPlan& plan, const Start& start, const Gpus& gpus) {
  switch (plan.spec.strategy.kind) {
    case dtrain::Strategy::Single:
    case dtrain::Strategy::Mirrored:
    case dtrain::Strategy::MultiWorkerMirrored:
    case dtrain::Strategy::CentralStorage:
      break;
    case dtrain::Strategy::ParameterServer:
    case dtrain::Strategy::Pipeline:
    case dtrain::Strategy::Tensor:
    case dtrain::Strategy::Mesh:
      return Error{Code::InvalidArgument,
                   fmt::format("strategy: {} trains on CPUs only", to_string(plan.spec.strategy.kind)),
                   "no gpus: below resources, or strategy: multi-worker-mirrored"};
  }
  TRY(auto gang, assemble(plan));
  TRY(const auto updater, gpus.open_updater(plan, std::move(gang)));
  return Training(plan, start, *updater, gpus.make_share).run();
}

Status work(const RunPlan& plan, const Start& start) {
  std::unique_ptr<Updater> updater;
  switch (plan.spec.strategy.kind) {
    case dtrain::Strategy::Single:
    case dtrain::Strategy::Mirrored:
    case dtrain::Strategy::MultiWorkerMirrored:
    // What a host has of parameters and state is one copy anyway, in memory that all devices see.
    case dtrain::Strategy::CentralStorage: {
      TRY(auto gang, assemble(plan));
      TRY(updater, AllReduce::open(plan, std::move(gang)));
      break;
    }
    case dtrain::Strategy::ParameterServer: {
      TRY(updater, ParameterServer::open(plan));
      break;
    }
    case dtrain::Strategy::Pipeline:
    case dtrain::Strategy::Tensor:
    case dtrain::Strategy::Mesh: {
      TRY(auto gang, assemble(plan));
      TRY(updater, SplitModel::open(plan, std::move(gang)));
      break;
    }
  }
  return Training(plan, start, *updater).run();
}

}  // namespace

Status run_replica(const Tunnels& tunnels, const Gpus* gpus) {
  const std::string text = variable(kEngineVariable);
  if (text.empty()) {
    return Error{Code::InvalidArgument, fmt::format("{} is not set", kEngineVariable),
                 "it is dtrain that starts this: framework: engine in dtrain.yml"};
  }
  TRY(EngineSpec spec, engine_spec_from_json(text));
  TRY(Place place, place_from_environment());
  const std::string output = variable("OUTPUT_DIR");
  const bool serves = place.role == Role::Ps;
  TRY(const int visible, serves ? Result<int>(0) : visible_gpus(gpus));
  TRY(RunPlan plan, make_plan(std::move(spec), std::move(place), fs::current_path(),
                              output.empty() ? fs::path("output") : fs::path(output), visible));
  plan.tunnels = tunnels;
  if (serves) return serve(plan);
  Start start;
  if (plan.place.is_master()) {
    TRY(start, Start::find(plan));
  }
  return plan.gpus > 0 ? work_on_gpus(plan, start, *gpus) : work(plan, start);
}

}  // namespace dtrain::engine
