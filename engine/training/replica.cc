#include "engine/training/replica.h"

#include <filesystem>

#include "engine/comm/rendezvous.h"
#include "engine/comm/socket.h"
#include "engine/enough_memory.h"
#include "engine/environment.h"
#include "engine/server/server.h"
#include "engine/strategies/all_reduce.h"
#include "engine/strategies/assemble.h"
#include "engine/strategies/parameter_server.h"
#include "engine/strategies/split_model.h"
#include "engine/training/run_plan.h"
#include "engine/training/training.h"
#include "schema/engine_check.h"

namespace dtrain::engine {

namespace {

// It reads no data: what a plan needs of it, the first worker says.
Status serve(const Tunnels& tunnels, const EngineSpec& spec, const Place& place, const std::filesystem::path& output_dir) {
  const ServerConfig config{.index = place.index,
                            .servers = place.ps,
                            .workers = place.workers,
                            .experiment = experiment_from_environment(),
                            .directory = (output_dir / ".dtrain-ps-state").string(),
                            .spec = spec};
  const auto make_plan = [&](const DataFacts& data) -> Result<ServerPlan> {
    TRY(JobPlan job, make_job_plan(spec, place, data));
    return ServerPlan{.layout = std::move(job.layout), .most_ahead = job.most_ahead(), .last_epoch = job.last_epoch()};
  };
  Tunnels::Held tunnel;
  return run_server(config, make_plan, [&](const server::Doors& doors) -> Status {
    if (spec.strategy.data_path == DataPath::Grpc) {
      TRY(tunnel, tunnels.open_exit(listening_address(place.address()), doors.local_address));
    }
    fmt::print("serving at {}\n", place.address());
    std::fflush(stdout);
    return ok();
  });
}

// What this process was given. The runner names none to a replica that asked for none.
Result<int> visible_gpus(const Gpus* gpus) {
  if (variable("CUDA_VISIBLE_DEVICES").empty()) return 0;
  if (gpus == nullptr) {
    return Error{Code::InvalidArgument, "this dtrain-engine was built without GPUs",
                 "cmake --preset cuda; or no gpus: below resources, by hand an empty CUDA_VISIBLE_DEVICES"};
  }
  TRY(const int count, gpus->count());
  if (count > 0) return count;
  return Error{Code::FailedPrecondition,
               fmt::format("CUDA_VISIBLE_DEVICES={} names no GPU that is here", variable("CUDA_VISIBLE_DEVICES")), ""};
}

// As dtrain does before it starts anything: who starts processes by hand may count otherwise than the strategy.
Status check_roles(const RunPlan& plan) {
  const EngineRoles roles{.workers = static_cast<int>(plan.place.workers.size()),
                          .servers = static_cast<int>(plan.place.ps.size()),
                          .gpus = plan.gpus,
                          .most_gpus = plan.gpus};
  for (const EngineProblem& problem : check_engine_roles(plan.spec, roles)) {
    return Error{Code::InvalidArgument, fmt::format("{}: {}", problem.key, problem.text), ""};
  }
  return ok();
}

Result<std::unique_ptr<Updater>> open_on_cpus(const RunPlan& plan, Listener listener) {
  switch (plan.spec.strategy.kind) {
    case dtrain::Strategy::Single:
    case dtrain::Strategy::Mirrored:
    case dtrain::Strategy::MultiWorkerMirrored:
    // What a host has of parameters and state is one copy anyway, in memory that all devices see.
    case dtrain::Strategy::CentralStorage: {
      TRY(auto gang, assemble(plan, std::move(listener)));
      TRY(auto updater, AllReduce::open(plan, std::move(gang)));
      return std::unique_ptr<Updater>(std::move(updater));
    }
    case dtrain::Strategy::ParameterServer: {
      // It has `listener` until it has joined the servers: who is late then, and listens, is waited for.
      TRY(auto updater, ParameterServer::open(plan));
      return std::unique_ptr<Updater>(std::move(updater));
    }
    case dtrain::Strategy::Pipeline:
    case dtrain::Strategy::Tensor:
    case dtrain::Strategy::Mesh:
      break;
  }
  TRY(auto gang, assemble(plan, std::move(listener)));
  TRY(auto updater, SplitModel::open(plan, std::move(gang)));
  return std::unique_ptr<Updater>(std::move(updater));
}

Result<std::unique_ptr<Updater>> open_on_gpus(const RunPlan& plan, Listener listener, const Gpus& gpus) {
  const dtrain::Strategy kind = plan.spec.strategy.kind;
  if (kind == dtrain::Strategy::ParameterServer || kind == dtrain::Strategy::CentralStorage) {
    TRY(auto keeper, open_on_cpus(plan, std::move(listener)));
    return gpus.stage(plan, std::move(keeper));
  }
  TRY(auto gang, assemble(plan, std::move(listener)));
  return gpus.open_updater(plan, std::move(gang));
}

Status work(const RunPlan& plan, Start& start, Listener listener, const Gpus* gpus) {
  if (plan.gpus == 0) {
    TRY(const auto updater, open_on_cpus(plan, std::move(listener)));
    return Training(plan, start, *updater).run();
  }
  TRY(const auto updater, open_on_gpus(plan, std::move(listener), *gpus));
  return Training(plan, start, *updater, gpus->make_share).run();
}

Status train_or_serve(const Tunnels& tunnels, const Gpus* gpus) {
  const std::string text = variable(kEngineVariable);
  if (text.empty()) {
    return Error{Code::InvalidArgument, fmt::format("{} is not set", kEngineVariable),
                 "it is dtrain that starts this: framework: engine in dtrain.yml"};
  }
  TRY(EngineSpec spec, engine_spec_from_json(text));
  TRY(Place place, place_from_environment());
  std::string output = variable("OUTPUT_DIR");
  if (output.empty()) output = "output";
  if (place.role == Role::Ps) return serve(tunnels, spec, place, output);
  // Before data is read, which may take long: so others see that this process is there.
  TRY(Listener listener, listen_for_others(place));
  TRY(const int visible, visible_gpus(gpus));
  TRY(RunPlan plan, make_plan(std::move(spec), std::move(place), output, visible));
  plan.tunnels = tunnels;
  TRY(check_roles(plan));
  Start start;
  if (plan.place.is_master()) {
    TRY(start, Start::find_within(plan, plan.spec.deadline_seconds / 3));
  }
  return work(plan, start, std::move(listener), gpus);
}

}  // namespace

Status run_replica(const Tunnels& tunnels, const Gpus* gpus) {
  return with_enough_memory([&] { return train_or_serve(tunnels, gpus); });
}

}  // namespace dtrain::engine
