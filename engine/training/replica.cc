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

Status work(const RunPlan& plan) {
  Start start;
  if (plan.place.is_master()) {
    TRY(start, Start::find(plan));
  }
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

Status run_replica(const Tunnels& tunnels) {
  const std::string text = variable(kEngineVariable);
  if (text.empty()) {
    return Error{Code::InvalidArgument, fmt::format("{} is not set", kEngineVariable),
                 "it is dtrain that starts this: framework: engine in dtrain.yml"};
  }
  TRY(EngineSpec spec, engine_spec_from_json(text));
  TRY(Place place, place_from_environment());
  const std::string output = variable("OUTPUT_DIR");
  TRY(RunPlan plan, make_plan(std::move(spec), std::move(place), fs::current_path(),
                                    output.empty() ? fs::path("output") : fs::path(output)));
  plan.tunnels = tunnels;
  return plan.place.role == Role::Ps ? serve(plan) : work(plan);
}

}  // namespace dtrain::engine
