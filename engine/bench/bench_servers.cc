#include "engine/bench/bench_servers.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <memory>

#include "engine/bench/ceilings.h"
#include "engine/bench/trainings.h"
#include "engine/server/client.h"
#include "engine/server/server.h"

namespace dtrain::engine {

namespace {

using Clock = std::chrono::steady_clock;

Layout layout_for(int64_t bytes) {
  Layout layout;
  layout.add({.name = "weight",
              .shape = {std::max<int64_t>(1, bytes / static_cast<int64_t>(sizeof(float)))}});
  return layout;
}

EngineSpec spec_for(DataPath path) {
  EngineSpec spec;
  spec.strategy.kind = Strategy::ParameterServer;
  spec.strategy.mode = ServerMode::Async;
  spec.strategy.data_path = path;
  spec.optimizer.learning_rate = 1e-6;
  spec.deadline_seconds = kBenchPatience_seconds;
  return spec;
}

// The worker that is measured by Unix sockets, and the one by TCP. They take turns.
constexpr size_t kWorkers = 2;

// Servers of one arena, each a process. They end with it.
class ServerProcesses {
 public:
  ServerProcesses(const Layout& layout, int count, DataPath path, const Tunnels& tunnels)
      : layout_(layout), tunnels_(tunnels) {
    static int made = 0;
    config_.spec = spec_for(path);
    config_.experiment = fmt::format("bench {} {}", ::getpid(), made++);
    config_.servers.resize(static_cast<size_t>(count), "127.0.0.1:0");
    config_.workers.resize(kWorkers, "this bench");
  }
  ~ServerProcesses() {
    for (const pid_t pid : processes_) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  // Forks.
  Status start() {
    const size_t count = config_.servers.size();
    std::vector<std::string> addresses;
    for (size_t i = 0; i < count; ++i) {
      TRY(ports_.emplace_back(), ReservedPort::take());
      addresses.push_back(ports_.back().address());
    }
    config_.servers = addresses;
    for (size_t i = 0; i < count; ++i) {
      const pid_t parent = ::getpid();
      const pid_t pid = ::fork();
      if (pid < 0) return errno_error("start a server", errno);
      if (pid > 0) {
        processes_.push_back(pid);
        continue;
      }
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      const Status status = serve(static_cast<int>(i));
      if (!status.ok()) fmt::print(stderr, "dtrain-engine: {}\n", status.error().message);
      ::_exit(1);
    }
    return ok();
  }

  Result<std::unique_ptr<ServerClient>> join(int rank, ServerWay way) {
    ServerClientConfig config = config_;
    config.rank = rank;
    config.local_sockets = way == ServerWay::Unix;
    if (way == ServerWay::Grpc) {
      TRY(config.through, tunnels_.open_entrance(config.servers));
    }
    TRY(auto client, ServerClient::join(config, layout_));
    if (rank == 0) {
      const std::vector<float> zeros(static_cast<size_t>(layout_.size()));
      const float* arenas[] = {zeros.data()};
      TRY(client->fill(arenas, 0, 0));
    }
    return client;
  }

 private:
  Status serve(int index) {
    const ServerConfig config{.index = index,
                              .servers = config_.servers,
                              .workers = config_.workers,
                              .experiment = config_.experiment,
                              .directory = "",
                              .spec = config_.spec};
    TRY(auto server, Server::open(config, {.layout = layout_}));
    Tunnels::Held tunnel;
    if (config_.spec.strategy.data_path == DataPath::Grpc) {
      TRY(tunnel,
          tunnels_.open_exit(config.servers[static_cast<size_t>(index)], server->doors().local_address));
    }
    return server->run();
  }

  const Layout layout_;
  const Tunnels& tunnels_;
  ServerClientConfig config_;
  std::vector<ReservedPort> ports_;
  std::vector<pid_t> processes_;
};

// One way to one set of servers.
struct Contender {
  ServerRate rate;
  ServerProcesses* servers;
  std::unique_ptr<ServerClient> client = {};
  std::vector<double> seconds = {};
};

struct SizeBench {
  int64_t bytes;
  std::vector<std::unique_ptr<ServerProcesses>> servers = {};
  std::vector<Contender> contenders = {};
};

Status measure(SizeBench& bench, Echo& tcp, Echo& local) {
  for (Contender& each : bench.contenders) {
    const int rank = each.rate.way == ServerWay::Tcp ? 1 : 0;
    TRY(each.client, each.servers->join(rank, each.rate.way));
  }
  const auto elements = static_cast<size_t>(layout_for(bench.bytes).size());
  const std::vector<float> gradients(elements, 1e-3f);
  std::vector<float> params(elements);
  std::vector<double> copies, tcp_seconds, local_seconds;
  constexpr double kBytesPerSize = 1e9;  // that are moved by each way, about
  constexpr int64_t kFewestRounds = 9, kMostRounds = 501;
  const int64_t rounds =
      std::clamp(static_cast<int64_t>(kBytesPerSize / (2 * double(bench.bytes))) | 1, kFewestRounds,
                 kMostRounds);
  for (int64_t round = -2; round < rounds; ++round) {
    const double copy = memcpy_seconds(bench.bytes) + memcpy_seconds(bench.bytes);
    TRY(const double over_tcp, tcp.seconds(bench.bytes));
    TRY(const double over_unix, local.seconds(bench.bytes));
    if (round >= 0) {
      copies.push_back(copy);
      tcp_seconds.push_back(over_tcp);
      local_seconds.push_back(over_unix);
    }
    for (Contender& each : bench.contenders) {
      const auto begin = Clock::now();
      TRY(each.client->push(gradients.data(), 1e-6, 1, params.data()));
      if (round >= 0)
        each.seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  }
  for (Contender& each : bench.contenders) {
    each.rate.seconds = median(each.seconds);
    each.rate.memcpy_seconds = median(copies);
    each.rate.socket_seconds =
        median(each.rate.way == ServerWay::Unix ? local_seconds : tcp_seconds);
    each.client.reset();
  }
  return ok();
}

}  // namespace

const char* to_string(ServerWay way) {
  switch (way) {
    case ServerWay::Unix:
      return "unix";
    case ServerWay::Tcp:
      return "tcp";
    case ServerWay::Grpc:
      return "grpc";
  }
  return "";
}

Result<std::vector<ServerRate>> bench_servers(std::span<const int64_t> sizes_bytes,
                                              std::span<const int> counts, const Tunnels& tunnels) {
  // All processes first: what speaks gRPC has threads.
  TRY(const auto tcp, Echo::open(Echo::Way::Tcp));
  TRY(const auto local, Echo::open(Echo::Way::Unix));
  std::vector<SizeBench> benches;
  for (const int64_t bytes : sizes_bytes) {
    SizeBench& bench = benches.emplace_back(bytes);
    for (const int count : counts) {
      for (const DataPath path : {DataPath::Raw, DataPath::Grpc}) {
        if (path == DataPath::Grpc && !tunnels.open_entrance) continue;
        auto servers = std::make_unique<ServerProcesses>(layout_for(bytes), count, path, tunnels);
        TRY(servers->start());
        const ServerRate rate{
            .bytes = layout_for(bytes).size() * static_cast<int64_t>(sizeof(float)),
            .servers = count};
        std::vector<ServerWay> ways{ServerWay::Unix, ServerWay::Tcp};
        if (path == DataPath::Grpc) ways = {ServerWay::Grpc};
        for (const ServerWay way : ways) {
          bench.contenders.push_back({.rate = rate, .servers = servers.get()});
          bench.contenders.back().rate.way = way;
        }
        bench.servers.push_back(std::move(servers));
      }
    }
  }
  std::vector<ServerRate> rates;
  for (SizeBench& bench : benches) {
    TRY(measure(bench, *tcp, *local));
    for (const Contender& each : bench.contenders) rates.push_back(each.rate);
    bench.contenders.clear();
    bench.servers.clear();
  }
  return rates;
}

}  // namespace dtrain::engine
