#include "daemon/daemon_main.h"

#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "daemon/blobs.h"
#include "daemon/client_api.h"
#include "daemon/exposed.h"
#include "daemon/grpc_log.h"
#include "daemon/listener.h"
#include "daemon/local_runner.h"
#include "daemon/logs.h"
#include "daemon/metrics.h"
#include "daemon/metrics_endpoint.h"
#include "daemon/monitor.h"
#include "daemon/network_listener.h"
#include "daemon/output_mark.h"
#include "daemon/pools.h"
#include "daemon/outputs_api.h"
#include "daemon/pruner.h"
#include "daemon/runner_api.h"
#include "daemon/scheduler.h"
#include "daemon/store.h"
#include "schema/clock.h"
#include "schema/config.h"
#include "schema/lock_file.h"
#include "schema/own_log.h"
#include "schema/process_limits.h"
#include "schema/removal_watch.h"
#include "schema/spread.h"
#include "schema/version.h"

namespace dtrain::daemon {

namespace {

namespace asio = boost::asio;

// Beyond this it refuses what it has no descriptor for, and goes on.
constexpr size_t kDescriptorsMin = 64;
// Of hosts, and of strangers until they have failed to show a certificate: 50 KB each.
constexpr size_t kConnectionsMax = 4096;
// How long the one who started us waits at most for the local runner to come in.
constexpr std::chrono::seconds kRunnerWait{10};
// What the scheduler waits at most, when busy, before it writes to the disk again.
constexpr std::chrono::milliseconds kGather{1};

// Tells whoever started us, once.
class Readiness {
 public:
  Readiness() {
    const char* text = std::getenv("DTRAIN_READY_FD");
    if (text != nullptr) fd_ = std::atoi(text);
    // Our children are not to hold it open.
    unsetenv("DTRAIN_READY_FD");
  }
  void announce() {
    if (fd_ < 3) return;
    (void)!::write(fd_, "r", 1);
    ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_ = -1;
};

Status make_folders(const Home& home) {
  for (const auto& folder : {home.blobs(), home.logs(), home.outputs(), home.runner()}) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return errno_error(fmt::format("create {}", folder.string()), error.value());
  }
  spread_subdirectories(home.outputs());
  return ok();
}

std::unique_ptr<grpc::Server> serve(ClientApi& client_api, RunnerApi& runner_api, OutputsApi& outputs_api) {
  grpc::ServerBuilder builder;
  builder.RegisterService(&client_api);
  builder.RegisterService(&runner_api);
  builder.RegisterService(&outputs_api);
  bound_threads(builder);
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.SetMaxSendMessageSize(kMessageBytesMax);
  return builder.BuildAndStart();
}

Status run(const DaemonOptions& options, Readiness& readiness) {
  const Home& home = options.home;
  TRY(check_descriptors_left(kDescriptorsMin));
  TRY(Config config, read_config(home));
  TRY(make_folders(home));
  auto lock = hold_lock(home.lock());
  if (!lock.ok() && lock.error().code != Code::FailedPrecondition) return std::move(lock).error();
  if (!lock.ok()) {
    return Error{Code::FailedPrecondition, "a daemon runs already: " + lock.error().message,
                 "`dtrain daemon status` shows it"};
  }
  std::error_code ignored;
  std::filesystem::remove(home.stopped_marker(), ignored);

  asio::io_context loop(1);
  TRY(const auto store, Store::open(home.database()));
  TRY(const auto blobs, Blobs::open(home.blobs()));
  for (const std::string& notice : blobs->notices()) std::fprintf(stderr, "%s\n", notice.c_str());

  RunnerApi runner_api(loop, *blobs, std::chrono::milliseconds(config.runner_timeout_ms));
  LogsDisk logs_disk;
  logs_disk.open_max = descriptor_limit() / 2;   // connections and readers need some as well
  Logs logs(loop, home.logs(), *store, [&runner_api](const LogKey& key, uint64_t offset) {
    runner_api.log_durable(key, offset);
  }, logs_disk);
  Metrics metrics(*store, logs);
  Scheduler scheduler(loop, home, *store, logs, metrics, runner_api, Policy{}, config.spool_limit_bytes);
  scheduler.gather_for(kGather);
  TRY(OutputMark output_mark, mark_outputs(home.outputs()));
  scheduler.set_output_mark(std::move(output_mark));
  runner_api.wire(&scheduler, &logs, &metrics);
  Monitor monitor(loop, scheduler, runner_api);
  runner_api.on_usage = [&monitor](const pb::UsageReport& report) { monitor.on_usage(report); };
  ExecRelay exec(loop, scheduler, runner_api);
  runner_api.on_left = [&exec](const HostId& host) { exec.leave(host); };
  runner_api.on_exec = [&exec](grpc::CallbackServerContext& call) { return exec.from_host(call); };
  Pruner pruner(loop, home, *store, *blobs, logs, scheduler, config);
  OutputsApi outputs_api(loop, home.outputs(), scheduler);
  std::unique_ptr<HostKeys> keys;
  std::unique_ptr<UserKeys> users;
  const auto listen = parse_endpoint(config.listen);
  if (listen || std::filesystem::exists(home.keys() / "users")) {   // those that are out can be revoked in any case
    TRY(keys, HostKeys::open(home.keys()));
    TRY(users, UserKeys::open(home.keys(), keys->authority()));
  }
  if (const auto& at = listen) {
    runner_api.guard(keys.get());
    outputs_api.guard(keys.get(), users.get());
    if (config.address.empty() && is_host_address(at->host)) config.address = at->host;
  }
  std::vector<Quota> quotas;
  for (const UserQuota& quota : config.quotas) quotas.push_back({quota.user, quota.cpus, quota.memory_bytes, quota.gpus});
  scheduler.set_quotas(std::move(quotas));
  std::vector<Weight> weights;
  for (const UserWeight& one : config.fair_share) weights.push_back({one.user, one.weight});
  scheduler.set_fair_share(std::move(weights));
  const NetworkListener* listens = nullptr;   // once it does
  std::optional<Pools> pools;
  TRY(const auto lent, store->allocations());
  // Those of an earlier configuration go back.
  if (!keys && !lent.records.empty()) {
    TRY(keys, HostKeys::open(home.keys()));
  }
  if (keys && (!config.pools.empty() || !lent.records.empty())) {
    for (const SlurmPool& pool : config.pools) scheduler.add_pool(facts_of(pool));
    pools.emplace(PoolParts{loop, home, *store, scheduler, runner_api, *keys, config.ports,
                            [&] { return dialled_as(*listens, "", config.address, home); }},
                  config.pools);
    runner_api.on_lent = [&](const std::string& key, Host& host) { return pools->admit(key, host); };
  }
  std::optional<MetricsEndpoint> open_metrics;
  if (const auto at = parse_endpoint(config.open_metrics)) {
    open_metrics.emplace(loop, *at, [&, started = unix_ms()](MetricsFormat format) {
      OwnUsage own = own_usage(home);
      own.started_unix_seconds = static_cast<double>(started) / 1e3;
      return open_metrics_text(expose(own, scheduler, metrics, monitor), format);
    });
  }
  ClientApi client_api({loop, home, *store, *blobs, logs, metrics, scheduler, runner_api, monitor, pruner, exec, keys.get(),
                        pools ? &*pools : nullptr, config.address,
                        open_metrics ? &*open_metrics : nullptr});
  scheduler.on_turn = [&] {
    client_api.after_turn();
    if (pools) pools->after_turn();
  };
  TRY(scheduler.load());
  if (pools) TRY(pools->load());

  std::unique_ptr<NetworkListener> network;
  client_api.listens_on(nullptr, users.get());
  if (listen) {
    TRY(network, NetworkListener::open(loop, {&client_api, &runner_api, &outputs_api}, keys->authority(), *listen,
                                       std::min(descriptor_limit() / 8, kConnectionsMax)));
    listens = network.get();
    client_api.listens_on(listens, users.get());
  }
  const auto server = serve(client_api, runner_api, outputs_api);
  if (!server) return Error{Code::Internal, "gRPC does not start", ""};
  Listener listener(loop, *server);
  TRY(listener.listen(home.socket()));   // we hold the lock: nobody else listens there

  LocalRunner local_runner(loop, home, config);
  asio::steady_timer give_up(loop, kRunnerWait);
  if (options.local_runner) {
    runner_api.on_connected = [&](const HostId& host) { local_runner.connected(host); };
    runner_api.on_disconnected = [&](const HostId& host) { local_runner.disconnected(host); };
    runner_api.on_hung = [&](const HostId& host) { local_runner.replace(host); };
    local_runner.on_joined = [&] { readiness.announce(); };
    local_runner.on_ended = [&] { readiness.announce(); };
    give_up.async_wait([&](boost::system::error_code) { readiness.announce(); });
    local_runner.start();
  } else {
    readiness.announce();
  }

  pruner.keep_limits();

  bool stopping = false;
  std::thread shutdown;
  asio::signal_set signals(loop, SIGTERM, SIGINT);
  enum class Runner { Ends, Stays };
  const auto stop = [&](Runner its_own) {
    if (std::exchange(stopping, true)) return;
    listener.close();
    if (network) network->close();
    if (open_metrics) open_metrics->close();
    if (its_own == Runner::Ends) local_runner.stop();
    if (pools) pools->stop();
    client_api.abandon_stop();
    outputs_api.close();
    pruner.stop();
    signals.cancel();
    exec.close();
    runner_api.close();
    // What is being answered gets a moment; then every stream still open is cut. The loop goes on
    // meanwhile: the streams end on it.
    shutdown = std::thread([&] {
      const auto deadline = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis(200, GPR_TIMESPAN));
      server->Shutdown(deadline);
      if (network) network->shut_down(deadline);
      asio::post(loop, [&] { loop.stop(); });
    });
  };
  client_api.on_stop = [&] { asio::post(loop, [&] { stop(Runner::Ends); }); };
  signals.async_wait([&](boost::system::error_code error, int) {
    if (!error) stop(Runner::Ends);
  });
  // Whoever removes it lets another daemon in here, which is not to find this one beside it.
  const RemovalWatch lock_watch(loop, home.lock(), {.on_file = [&] {
    if (stopping || !is_removed(*lock)) return;
    std::fprintf(stderr, "ends: %s was removed\n", home.lock().c_str());
    stop(Runner::Stays);
  }});
  std::fprintf(stderr, "dtrain %s: listening on %s\n", kVersion, home.socket().c_str());
  loop.run();
  shutdown.join();
  return ok();
}

}  // namespace

Status run_daemon(const DaemonOptions& options) {
  raise_own_limits();
  std::signal(SIGPIPE, SIG_IGN);
  log_grpc_errors();
  bound_own_log(options.home.daemon_log());
  Readiness readiness;
  return run(options, readiness);
}

}  // namespace dtrain::daemon
