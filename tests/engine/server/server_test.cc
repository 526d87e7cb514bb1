#include "engine/server/server.h"

#include <doctest/doctest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <limits>

#include "tests/engine/server/servers.h"

namespace dtrain::engine {
namespace {

void each(int workers, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 1; rank < workers; ++rank) threads.emplace_back(body, rank);
  body(0);
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("async: every gradient counts once, whoever pushes at the same time") {
  for (const int shards : {1, 3}) {
    const Layout layout = test_layout();
    const auto size = static_cast<size_t>(layout.size());
    constexpr int kWorkers = 4, kPushes = 30;
    const Servers servers(spec_of(ServerMode::Async), layout, shards, kWorkers);
    std::vector<Arena> seen(kWorkers, Arena(size));
    each(kWorkers, [&](int rank) {
      const auto client = join(servers.worker(rank), layout);
      Arena grads(size);
      for (int push = 0; push < kPushes; ++push) {
        for (size_t i = 0; i < size; ++i)
          grads[i] = static_cast<float>(i % 7 + static_cast<size_t>(rank));
        Arena& params = seen[static_cast<size_t>(rank)];
        require_ok(
            client->push(grads.data(), kRate, kScale, push % 3 == 0 ? nullptr : params.data()));
      }
      CHECK(client->pushes() == kPushes);
      require_ok(client->leave());
    });
    Arena params(size);
    auto late = servers.worker(1);
    const auto client = join(late, layout);
    CHECK(client->pushes() == kPushes);
    require_ok(client->pull(params.data()));
    CHECK(client->updates() == kWorkers * kPushes);
    size_t wrong = 0;
    for (size_t i = 0; i < size; ++i) {
      const auto expected = static_cast<float>(kPushes * (4 * (i % 7) + 6));
      wrong += params[i] == expected ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

// Rank's leaves of 8, as the fixed tree's largest nodes.
std::vector<std::pair<int, int>> nodes_of(int rank, int workers) {
  int begin = rank * 8 / workers;
  const int end = (rank + 1) * 8 / workers;
  std::vector<std::pair<int, int>> nodes;
  while (begin < end) {
    int size = 1;
    while (begin % (2 * size) == 0 && begin + 2 * size <= end) size *= 2;
    nodes.emplace_back(begin, begin + size);
    begin += size;
  }
  return nodes;
}

constexpr int kServedSteps = 3;
constexpr uint64_t kStepSamples = 48;  // of a leaf: 6

const std::vector<Arena>& leaves_of_step(int64_t size, int step) {
  static const std::vector<std::vector<Arena>> steps = [size] {
    std::vector<std::vector<Arena>> made(kServedSteps + 1);
    for (unsigned seed = 8; seed < 8 * (kServedSteps + 1); ++seed) {
      made[seed / 8].push_back(random_arena(size, seed));
    }
    return made;
  }();
  return steps[static_cast<size_t>(step)];
}

Arena by_one(const EngineSpec& spec, const Layout& layout, Arena params) {
  const OptimizerKernel kernel(spec.optimizer, layout);
  const auto size = static_cast<size_t>(layout.size());
  Arena state0(size), state1(size);
  for (int step = 1; step <= kServedSteps; ++step) {
    const Arena sum = tree_sum(leaves_of_step(layout.size(), step), 0, 8);
    std::vector<double> squares(static_cast<size_t>(blocks_of(layout.size())));
    block_squares({0, layout.size()}, sum.data(), squares.data());
    const double scale = clipped_scale(sum_of(squares), 1.0 / kStepSamples, spec.clip_norm);
    kernel.update({0, layout.size()},
                  {.learning_rate = 0.1 / step, .gradient_scale = scale, .step = step},
                  params.data(), sum.data(), state0.data(), state1.data());
  }
  return params;
}

TEST_CASE("sync: parameters have the bits of the tree's sum, at any number of workers and shards") {
  const Layout layout = test_layout();
  const Arena initial = random_arena(layout.size(), 99);
  std::vector<EngineSpec> specs(3, spec_of(ServerMode::Sync));
  specs[1].optimizer = {.kind = Optimizer::AdamW, .weight_decay = 0.1};
  specs[1].clip_norm = 1.5;  // of about 12
  specs[2].optimizer = {.momentum = 0.9, .weight_decay = 0.01};
  specs[2].clip_norm = 1e6;
  for (const EngineSpec& spec : specs) {
    const Arena expected = by_one(spec, layout, initial);
    for (const int workers : {1, 2, 3, 4, 8}) {
      for (const int shards : {1, 3}) {
        const Servers servers(spec, layout, shards, workers);
        std::atomic<int> equal = 0;
        each(workers, [&](int rank) {
          const auto client = join(servers.worker(rank), layout, &initial);
          Arena params(initial.size());
          require_ok(client->pull(params.data()));
          for (int step = 1; step <= kServedSteps; ++step) {
            const std::vector<Arena>& leaves = leaves_of_step(layout.size(), step);
            std::vector<Arena> sums;
            std::vector<NodeSums> nodes;
            sums.reserve(8);
            for (const auto& [begin, end] : nodes_of(rank, workers)) {
              sums.push_back(tree_sum(leaves, begin, end));
              nodes.push_back({begin, end, sums.back().data()});
            }
            const int own = (rank + 1) * 8 / workers - rank * 8 / workers;
            require_ok(client->push_step(nodes, {.rows = 6 * own}, 0.1 / step,
                                         params.data()));
            CHECK(client->updates() == static_cast<uint64_t>(step));
          }
          if (std::memcmp(params.data(), expected.data(), params.size() * sizeof(float)) == 0) {
            ++equal;
          }
        });
        CHECK(equal == workers);
      }
    }
  }
}

TEST_CASE("optimiser state can be read, and filled in again elsewhere") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.optimizer = {.kind = Optimizer::Adam};
  const Layout layout = test_layout();
  const auto size = static_cast<size_t>(layout.size());
  const Arena grads = random_arena(layout.size(), 1), initial = random_arena(layout.size(), 2);
  const NodeSums node{0, 8, grads.data()};
  std::vector<Arena> state(3, Arena(size));
  Arena straight(size), resumed(size);
  {
    const Servers servers(spec, layout, 2, 1);
    const auto client = join(servers.worker(0), layout, &initial);
    require_ok(client->push_step({&node, 1}, {.rows = 1}, 0.1, straight.data()));
    for (int arena = 0; arena < 3; ++arena) {
      require_ok(client->read(arena, state[static_cast<size_t>(arena)].data()));
    }
    CHECK(state[0] == straight);
    require_ok(client->push_step({&node, 1}, {.rows = 1}, 0.1, straight.data()));
  }
  const Servers servers(spec, layout, 3, 1);
  const auto client = required(ServerClient::join(servers.worker(0), layout));
  const std::vector<const float*> arenas{state[0].data(), state[1].data(), state[2].data()};
  require_ok(client->fill(arenas, 1, 1));
  CHECK(client->updates() == 1);
  require_ok(client->push_step({&node, 1}, {.rows = 1}, 0.1, resumed.data()));
  CHECK(client->updates() == 2);
  CHECK(resumed == straight);
}

TEST_CASE("a rate that is not finite is refused") {
  const Layout layout = test_layout();
  const Servers servers(spec_of(ServerMode::Async), layout, 1, 1);
  const auto client = join(servers.worker(0), layout);
  const Arena zeros(static_cast<size_t>(layout.size()));
  Arena params(zeros.size());
  const Status pushed = client->push(zeros.data(), 1, std::numeric_limits<double>::infinity(), params.data());
  REQUIRE_FALSE(pushed.ok());
  CHECK(pushed.error().code == Code::InvalidArgument);
}

TEST_CASE("sync with a backup: the step is done without the slowest, who goes on with the others") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.strategy.backup = 1;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 2, 2);
  const auto fast = join(servers.worker(0), layout);
  const auto slow = join(servers.worker(1), layout);
  const Arena grads(static_cast<size_t>(layout.size()), -2), none(grads.size(), 100);
  Arena params(grads.size()), late(grads.size());
  const NodeSums node{0, 4, grads.data()}, other{4, 8, none.data()};
  for (int step = 1; step <= 3; ++step) {
    require_ok(fast->push_step({&node, 1}, {.rows = 2}, 1, params.data()));
    CHECK(params.front() == static_cast<float>(step));
  }
  require_ok(slow->push_step({&other, 1}, {.rows = 2}, 1, late.data()));
  CHECK(slow->pushes() == 3);
  CHECK(late == params);
  require_ok(slow->push_step({&node, 1}, {.rows = 2}, 1, late.data()));
  CHECK(late.front() == 4);
}

TEST_CASE("a gradient that is not finite is refused") {
  const Layout layout = test_layout();
  for (const ServerMode mode : {ServerMode::Async, ServerMode::Sync}) {
    const Servers servers(spec_of(mode), layout, 1, 1);
    const auto client = join(servers.worker(0), layout);
    Arena grads(static_cast<size_t>(layout.size()), 1), params(grads.size());
    grads[40000] = std::numeric_limits<float>::quiet_NaN();
    const NodeSums node{0, 8, grads.data()};
    const Status pushed = mode == ServerMode::Async
                              ? client->push(grads.data(), 1, 1, params.data())
                              : client->push_step({&node, 1}, {.rows = 1}, 1, params.data());
    REQUIRE_FALSE(pushed.ok());
    CHECK(pushed.error().code == Code::InvalidArgument);
    CHECK(pushed.error().message.find("not finite") != std::string::npos);
  }
}

TEST_CASE("garbage, frames too long and frames out of turn cost one connection and nothing else") {
  const Layout layout = test_layout();
  const Servers servers(spec_of(ServerMode::Async), layout, 1, 2);
  const ServerClientConfig config = servers.worker(0);
  const auto client = join(config, layout);
  const uint64_t job = job_of(config);
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    auto socket = required(Socket::connect(config.servers[0], Deadline::after(10)));
    struct {
      server::Frame hello;
      DataFacts data;
      server::Frame next;
    } sent;
    sent.hello.op = server::ServerOp::Hello;
    sent.hello.job = job;
    sent.hello.payload = sizeof(DataFacts);
    sent.hello.rank = round % 2 == 0 ? 1 : 7;
    sent.hello.threads = 1;
    sent.hello.layout = layout.hash();
    sent.next.op = static_cast<server::ServerOp>(random() % 20);
    sent.next.payload = random() % 2 == 0 ? random() : ~0ULL;
    sent.next.sequence = random() % 3;
    if (round % 3 == 0) {
      for (int i = 0; i < 4; ++i) reinterpret_cast<unsigned char*>(&sent)[random() % sizeof(sent)] = static_cast<unsigned char>(random());
    }
    // It may be gone before all is written.
    static_cast<void>(socket.write(&sent, sizeof(sent), Deadline::after(10)));
  }
  Arena grads(static_cast<size_t>(layout.size()), 1), params(grads.size());
  require_ok(client->push(grads.data(), kRate, kScale, params.data()));
  CHECK(params.front() == 1);
}

TEST_CASE("a push sent again is answered and not applied again") {
  const Layout layout = test_layout();
  const Servers servers(spec_of(ServerMode::Async), layout, 1, 2);
  const ServerClientConfig config = servers.worker(1);
  const auto first = join(servers.worker(0), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size());
  const auto deadline = Deadline::after(10);
  // Half a push, then the connection breaks; then all of it, twice.
  for (const size_t bytes :
       {100000UL, grads.size() * sizeof(float), grads.size() * sizeof(float)}) {
    auto socket = required(Socket::connect(config.servers[0], deadline));
    say_hello(socket, {.job = job_of(config), .rank = 1, .threads = 1, .layout = layout.hash()});
    server::Frame answer;
    require_ok(socket.read(&answer, sizeof(answer), deadline));
    REQUIRE(answer.op == server::ServerOp::Welcome);
    const server::Frame push{.op = server::ServerOp::Push,
                             .sequence = 1,
                             .payload = grads.size() * sizeof(float),
                             .rank = 1,
                             .learning_rate = kRate,
                             .gradient_scale = kScale};
    require_ok(socket.write(&push, sizeof(push), deadline));
    require_ok(socket.write(grads.data(), bytes, deadline));
    if (bytes < grads.size() * sizeof(float)) continue;
    require_ok(socket.read(&answer, sizeof(answer), deadline));
    CHECK(answer.op == server::ServerOp::Ack);
  }
  require_ok(first->pull(params.data()));
  CHECK(params == grads);
}

TEST_CASE("a server listens where its host has another address than the one that others know, too") {
  const EngineSpec spec = spec_of(ServerMode::Async);
  ServerConfig config{.servers = {"192.0.2.1:0"}, .workers = {""}, .experiment = "", .directory = "", .spec = spec};
  const auto server = Server::open(config, {.layout = test_layout()});
  REQUIRE_MESSAGE(server.ok(), server.error().message);
  CHECK(Socket::connect(fmt::format("127.0.0.1:{}", (*server)->doors().tcp.port()), Deadline::after(5)).ok());
}

TEST_CASE("fewer blocks than servers leave some without anything to hold") {
  Layout layout;
  layout.add({.name = "a", .shape = {5000}});
  const Servers servers(spec_of(ServerMode::Async), layout, 3, 1);
  const auto client = join(servers.worker(0), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size());
  require_ok(client->push(grads.data(), kRate, kScale, params.data()));
  CHECK(params == grads);
  require_ok(client->finish());
}

}  // namespace
}  // namespace dtrain::engine
