// Parameter servers and their workers in one process: for tests of what they do together.
#pragma once

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/norm.h"
#include "engine/server/client.h"
#include "engine/server/server.h"
#include "engine/server/shards.h"

namespace dtrain::engine {

// Of two matrices and their biases: 11 blocks and a part of one.
inline Layout test_layout() {
  Layout layout;
  layout.add({.name = "0.weight", .shape = {150, 200}});
  layout.add({.name = "0.bias", .shape = {200}, .decays = false});
  layout.add({.name = "1.weight", .shape = {200, 75}});
  layout.add({.name = "1.bias", .shape = {75}, .decays = false});
  return layout;
}

using Arena = std::vector<float>;

// With a rate of 1 and a scale of -1 the servers add gradients up.
inline constexpr double kRate = 1, kScale = -1;

inline Arena random_arena(int64_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Arena arena(static_cast<size_t>(size));
  for (float& each : arena) each = normal(random);
  return arena;
}

// Of leaves [begin, end), as the tree adds them up.
inline Arena tree_sum(const std::vector<Arena>& leaves, int begin, int end) {
  if (end - begin == 1) return leaves[static_cast<size_t>(begin)];
  const int middle = (begin + end) / 2;
  Arena sum = tree_sum(leaves, begin, middle);
  const Arena right = tree_sum(leaves, middle, end);
  for (size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
  return sum;
}

inline EngineSpec spec_of(ServerMode mode) {
  EngineSpec spec;
  spec.strategy.kind = Strategy::ParameterServer;
  spec.strategy.mode = mode;
  spec.deadline_seconds = 20;
  return spec;
}

// Servers with a thread each, and what their workers need to find them.
class Servers {
 public:
  Servers(const EngineSpec& spec, const Layout& layout, int servers, int workers, int64_t most_ahead = 0,
          const DataFacts& data = {}, Range last_epoch = {})
      : Servers(spec, layout, servers, std::vector<std::string>(static_cast<size_t>(workers)), most_ahead, data, last_epoch) {}
  // `workers`: where they listen while they read their data.
  Servers(const EngineSpec& spec, const Layout& layout, int servers, const std::vector<std::string>& workers,
          int64_t most_ahead = 0, const DataFacts& data = {}, Range last_epoch = {}) {
    // The number of servers and workers is part of what both must agree on; their addresses are
    // not.
    worker_.spec = spec;
    worker_.data = data;
    worker_.servers.resize(static_cast<size_t>(servers), "127.0.0.1:0");
    worker_.workers = workers;
    for (int i = 0; i < servers; ++i) {
      const ServerConfig config{.index = i,
                                .servers = worker_.servers,
                                .workers = worker_.workers,
                                .experiment = worker_.experiment,
                                .directory = "",
                                .spec = spec};
      auto server = Server::open(config, {.layout = layout, .most_ahead = most_ahead, .last_epoch = last_epoch, .data = data});
      REQUIRE_MESSAGE(server.ok(), server.error().message);
      servers_.push_back(std::move(server).value());
    }
    for (size_t i = 0; i < servers_.size(); ++i) {
      worker_.servers[i] = fmt::format("127.0.0.1:{}", servers_[i]->doors().tcp.port());
      threads_.emplace_back([server = servers_[i].get()] { CHECK(server->run().ok()); });
    }
  }
  ~Servers() {
    for (const auto& server : servers_) server->stop();
    for (std::thread& thread : threads_) thread.join();
  }

  ServerClientConfig worker(int rank) const {
    ServerClientConfig config = worker_;
    config.rank = rank;
    return config;
  }

 private:
  ServerClientConfig worker_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::thread> threads_;
};

inline void require_ok(const Status& status) {
  REQUIRE_MESSAGE(status.ok(), (status.ok() ? "" : status.error().message));
}

template <typename T>
T required(Result<T> result) {
  REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message));
  return std::move(result).value();
}

// A worker; worker 0 fills the servers with zeros, or with `params`.
inline std::unique_ptr<ServerClient> join(const ServerClientConfig& config, const Layout& layout,
                                          const Arena* params = nullptr) {
  auto client = required(ServerClient::join(config, layout));
  if (config.rank == 0) {
    const Arena zeros(static_cast<size_t>(layout.size()));
    std::vector<const float*> arenas{params != nullptr ? params->data() : zeros.data()};
    const int states = OptimizerKernel(config.spec.optimizer, layout).states();
    for (int i = 0; i < states; ++i) arenas.push_back(zeros.data());
    require_ok(client->fill(arenas, 0, 0));
  }
  return client;
}

inline uint64_t job_of(const ServerClientConfig& config) {
  return server_job(config.experiment, config.spec, config.servers.size(), config.workers.size());
}

inline void say_hello(Socket& socket, server::Frame frame, DataFacts data = {}) {
  frame.op = server::ServerOp::Hello;
  frame.payload = sizeof(data);
  const iovec parts[] = {{&frame, sizeof(frame)}, {&data, sizeof(data)}};
  require_ok(socket.write(parts, Deadline::after(10)));
}

// A worker's connections to servers that hold anything, frame by frame: it may push to some and not to others.
class RawWorker {
 public:
  RawWorker(const ServerClientConfig& config, const Layout& layout, server::ServerOp first = server::ServerOp::Welcome)
      : config_(config), ranges_(shards_of(layout.size(), static_cast<int>(config.servers.size()))) {
    for (size_t i = 0; i < ranges_.size(); ++i) {
      sockets_.emplace_back();
      if (ranges_[i].size() == 0) continue;
      auto socket = required(Socket::connect(config.servers[i], deadline()));
      say_hello(socket, {.job = job_of(config), .rank = static_cast<uint32_t>(config.rank), .threads = 1,
                         .layout = layout.hash()});
      CHECK(answer(socket).op == first);
      sockets_.back() = std::move(socket);
    }
  }
  // Returns once the server has done the step, or says its squares.
  void push(size_t server, uint64_t step, const NodeSums& node) {
    send(server,
         {.op = server::ServerOp::Node,
          .flags = server::kLast,
          .sequence = step,
          .learning_rate = 1,
          .samples = 2,
          .leaf_begin = static_cast<uint16_t>(node.begin),
          .leaf_end = static_cast<uint16_t>(node.end)},
         node.values);
    CHECK(answer(server).sequence == step);
  }
  // In so many pieces, with something between them.
  void send(size_t server, const server::Frame& frame, const float* values = nullptr, int64_t pieces = 1,
            const std::function<void()>& between = [] {}) {
    send_part(server, frame, values, 0);
    Socket& socket = sockets_[server];
    const Range range = ranges_[server];
    for (int64_t i = 0; i < pieces && values != nullptr; ++i) {
      if (i > 0) between();
      const int64_t begin = range.size() * i / pieces, end = range.size() * (i + 1) / pieces;
      require_ok(socket.write(values + range.begin + begin, static_cast<size_t>(end - begin) * sizeof(float), deadline()));
    }
  }
  // The first of the values that the frame announces, and no more.
  void send_part(size_t server, server::Frame frame, const float* values, int64_t count) {
    const Range range = ranges_[server];
    frame.rank = static_cast<uint32_t>(config_.rank);
    frame.payload = values == nullptr ? 0 : static_cast<uint64_t>(range.size()) * sizeof(float);
    require_ok(sockets_[server].write(&frame, sizeof(frame), deadline()));
    if (count == 0) return;
    require_ok(sockets_[server].write(values + range.begin, static_cast<size_t>(count) * sizeof(float), deadline()));
  }
  server::Frame answer(size_t server) {
    const server::Frame frame = answer(sockets_[server]);
    std::string text(frame.payload, '\0');
    require_ok(sockets_[server].read(text.data(), text.size(), deadline()));
    return frame;
  }

 private:
  static Deadline deadline() { return Deadline::after(10); }
  static server::Frame answer(Socket& socket) {
    server::Frame frame;
    require_ok(socket.read(&frame, sizeof(frame), deadline()));
    return frame;
  }
  const ServerClientConfig config_;
  const std::vector<Range> ranges_;
  std::vector<Socket> sockets_;
};

// How often one who waits hears so until more than a deadline is over.
inline constexpr int kWaitsADeadline = 10;

// A deadline, and for how long worker 0, who lives, has others wait: there is no event that says "still waiting".
inline constexpr double kWaitedFor = 2;
inline constexpr std::chrono::milliseconds kLonger{2500};
// The same where a server starts again meanwhile, which has to be there before the deadline is over.
inline constexpr double kStartedWithin = 6;
inline constexpr std::chrono::milliseconds kLongerThanStart{6500};

// A step of two workers with so many leaves each, of which worker 0 pushes its own after the deadline.
inline void push_after_deadline(ServerClient& first, ServerClient& second, const Layout& layout, int leaves,
                                std::chrono::milliseconds longer = kLonger,
                                const std::function<void()>& meanwhile = [] {}) {
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size()), others(grads.size());
  const NodeSums left{0, leaves, grads.data()}, right{leaves, 2 * leaves, grads.data()};
  auto waits = std::async(std::launch::async, [&] { return second.push_step({&right, 1}, {.rows = 1}, 0.1, others.data()); });
  meanwhile();
  CHECK(waits.wait_for(longer) == std::future_status::timeout);
  require_ok(first.push_step({&left, 1}, {.rows = 1}, 0.1, params.data()));
  require_ok(waits.get());
  CHECK(params == others);
}

}  // namespace dtrain::engine
