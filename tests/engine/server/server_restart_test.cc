// Servers that are killed at any moment and started again.
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "engine/bench/trainings.h"
#include "schema/fd.h"
#include "tests/engine/server/servers.h"
#include "tests/support/project.h"

namespace dtrain::engine {
namespace {

// Forks servers for a test that has threads by then: what is forked of several may wait for ever for a lock that one of
// them had. Itself forked before, it has one thread.
class Nursery {
 public:
  explicit Nursery(const std::function<int(int server)>& run) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::dup2(ends[1], 3);
      ::close_range(4, ~0U, 0);  // else servers would hold connections of this process open
      ::signal(SIGTERM, SIG_DFL);  // doctest's would report a failed test
      serve(run);
    }
    ::close(ends[1]);
    socket_ = Fd(ends[0]);
  }
  ~Nursery() {
    socket_.reset();  // at which it ends
    ::waitpid(pid_, nullptr, 0);
  }
  Nursery(const Nursery&) = delete;
  Nursery& operator=(const Nursery&) = delete;

  void start(int server) { ask({server, 0}); }
  // Its exit status.
  int end(int server, int signal) { return ask({server, signal}); }

 private:
  struct Order {
    int server = 0;
    int signal = 0;  // 0: it starts
  };

  int ask(const Order& order) {
    int answer = -1;
    REQUIRE(::send(socket_.get(), &order, sizeof(order), MSG_NOSIGNAL) == sizeof(order));
    REQUIRE(::recv(socket_.get(), &answer, sizeof(answer), 0) == sizeof(answer));
    return answer;
  }

  [[noreturn]] static void serve(const std::function<int(int server)>& run) {
    std::map<int, pid_t> servers;
    Order order;
    while (::recv(3, &order, sizeof(order), 0) == sizeof(order)) {
      int answer = 0;
      pid_t& pid = servers[order.server];
      if (order.signal != 0) {
        ::kill(pid, order.signal);
        ::waitpid(pid, &answer, 0);
      } else if ((pid = ::fork()) == 0) {
        ::close(3);
        ::_exit(run(order.server));
      }
      if (::send(3, &answer, sizeof(answer), MSG_NOSIGNAL) != sizeof(answer)) break;
    }
    ::_exit(0);
  }

  pid_t pid_ = 0;
  Fd socket_;
};

// Servers that are processes, each at the port that it had before.
class Processes {
 public:
  Processes(const EngineSpec& spec, const Layout& layout, int servers, int workers)
      : layout_(layout) {
    config_.directory = folder_ / "ps-state";
    config_.spec = spec;
    config_.workers.resize(static_cast<size_t>(workers));
    for (int i = 0; i < servers; ++i) {
      ports_.push_back(required(ReservedPort::take()));
      config_.servers.push_back(ports_.back().address());
    }
    nursery_.emplace([this](int index) {
      config_.index = index;
      return run_server(config_, [&](const DataFacts&) { return Result(ServerPlan{.layout = layout_}); }).ok() ? 0 : 1;
    });
    runs_.assign(static_cast<size_t>(servers), false);
    for (int i = 0; i < servers; ++i) start(i);
  }
  ~Processes() {
    for (size_t i = 0; i < runs_.size(); ++i) end(static_cast<int>(i), SIGKILL);
  }

  void restart(int index) {
    end(index, SIGKILL);
    start(index);
  }
  // Its exit status, if it was not ended before.
  std::optional<int> end(int index, int signal) {
    if (!runs_[static_cast<size_t>(index)]) return std::nullopt;
    runs_[static_cast<size_t>(index)] = false;
    return nursery_->end(index, signal);
  }
  const std::string& directory() const { return config_.directory; }
  ServerClientConfig worker(int rank) const {
    return {.rank = rank,
            .servers = config_.servers,
            .workers = config_.workers,
            .experiment = config_.experiment,
            .attempt = 0,
            .spec = config_.spec};
  }

 private:
  void start(int index) {
    nursery_->start(index);
    runs_[static_cast<size_t>(index)] = true;
  }

  test::TemporaryFolder folder_;
  const Layout layout_;
  ServerConfig config_;
  std::vector<ReservedPort> ports_;  // nobody else gets them while servers start again
  std::optional<Nursery> nursery_;
  std::vector<bool> runs_;
};

int kills() {
  const char* const given = std::getenv("SERVER_KILLS");
  return given != nullptr ? std::atoi(given) : 30;
}

// Until there is one more push, and a bit: anywhere in the next. Not many more, however busy this
// machine is: sums should stay exact.
void wait_for_push(const std::atomic<int>& pushes, std::atomic<int>& allowed,
                   std::mt19937& random) {
  const int before = pushes;
  allowed = before + 4;
  while (pushes == before) std::this_thread::yield();
  for (auto turns = random() % 300; turns > 0; --turns) std::this_thread::yield();
}

TEST_CASE("async: servers killed at any moment lose no push and apply none twice") {
  EngineSpec spec = spec_of(ServerMode::Async);
  spec.optimizer.momentum = 1;  // sums of sums: order between workers shows, so one has it all
  for (const int workers : {1, 3}) {
    spec.optimizer.momentum = workers == 1 ? 1 : 0;
    const Layout layout = test_layout();
    const auto size = static_cast<size_t>(layout.size());
    Processes servers(spec, layout, 2, workers);
    std::atomic<int> pushes = 0, allowed = 0, running = workers;
    std::atomic<bool> enough = false;
    std::vector<int> pushed(static_cast<size_t>(workers));
    std::vector<std::vector<uint64_t>> dealt(static_cast<size_t>(workers));
    Arena params(size);
    Outcome learned;
    std::vector<std::thread> threads;
    for (int rank = 0; rank < workers; ++rank) {
      threads.emplace_back([&, rank] {
        const auto client = join(servers.worker(rank), layout);
        Arena grads(size), own(size);
        while (!enough) {
          if (pushes >= allowed) {
            std::this_thread::yield();
            continue;
          }
          for (size_t i = 0; i < size; ++i)
            grads[i] = static_cast<float>(i % 5 + static_cast<size_t>(rank));
          dealt[static_cast<size_t>(rank)].push_back(client->deal());
          require_ok(client->push(grads.data(), 1, -1, own.data(), {.loss = 0.5, .rows = 1}));
          ++pushed[static_cast<size_t>(rank)];
          ++pushes;
        }
        CHECK(client->pushes() == static_cast<uint64_t>(pushed[static_cast<size_t>(rank)]));
        dealt[static_cast<size_t>(rank)].push_back(client->deal());
        --running;
        while (running > 0) std::this_thread::yield();
        if (rank != 0) return;
        require_ok(client->pull(params.data()));
        learned = client->learned();
      });
    }
    std::mt19937 random(17);
    for (int kill = 0; kill < kills(); ++kill) {
      wait_for_push(pushes, allowed, random);
      servers.restart(static_cast<int>(random() % 2));
    }
    enough = true;
    for (std::thread& thread : threads) thread.join();
    size_t wrong = 0;
    for (size_t i = 0; i < size; ++i) {
      int64_t expected = 0;
      for (int rank = 0; rank < workers; ++rank) {
        const int64_t n = pushed[static_cast<size_t>(rank)];
        const int64_t weight = workers == 1 ? n * (n + 1) / 2 : n;
        expected += weight * static_cast<int64_t>(i % 5 + static_cast<size_t>(rank));
      }
      REQUIRE(expected < 1 << 24);
      wrong += params[i] == static_cast<float>(expected) ? 0 : 1;
    }
    CHECK(wrong == 0);
    std::vector<uint64_t> all;
    for (const auto& of : dealt) all.insert(all.end(), of.begin(), of.end());
    std::ranges::sort(all);
    for (size_t i = 0; i < all.size(); ++i) REQUIRE(all[i] == i);
    CHECK(learned.rows <= pushes);
    CHECK(learned.rows >= pushes - kills());
    CHECK(learned.loss >= 0.5 * (pushes - kills()));
  }
}

TEST_CASE("sync: servers killed at any moment give the bits of an undisturbed run") {
  for (const double clip_norm : {0.0, 2.0}) {
    EngineSpec spec = spec_of(ServerMode::Sync);
    spec.optimizer = {.kind = Optimizer::Adam};
    spec.clip_norm = clip_norm;
    const Layout layout = test_layout();
    const auto size = static_cast<size_t>(layout.size());
    Processes servers(spec, layout, 2, 2);
    std::atomic<int> steps = 0, allowed = 0;
    std::atomic<int> last = -1;  // the step both end with
    Arena results[2] = {Arena(size), Arena(size)};
    const Arena grads[2] = {random_arena(layout.size(), 1), random_arena(layout.size(), 2)};
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const auto client = join(servers.worker(rank), layout);
        for (int step = 1; last < 0 || step <= last; ++step) {
          while (last < 0 && steps >= allowed) std::this_thread::yield();
          const NodeSums node{4 * rank, 4 * rank + 4, grads[rank].data()};
          require_ok(client->push_step({&node, 1}, {.rows = 32}, 0.01, results[rank].data()));
          if (rank == 0) steps = step;
        }
      });
    }
    std::mt19937 random(23);
    for (int kill = 0; kill < kills(); ++kill) {
      wait_for_push(steps, allowed, random);
      servers.restart(static_cast<int>(random() % 2));
    }
    last = steps + 50;
    for (std::thread& thread : threads) thread.join();

    const OptimizerKernel kernel(spec.optimizer, layout);
    Arena params(size), state0(size), state1(size), sum(size);
    for (size_t i = 0; i < size; ++i) sum[i] = grads[0][i] + grads[1][i];
    std::vector<double> squares(static_cast<size_t>(blocks_of(layout.size())));
    block_squares({0, layout.size()}, sum.data(), squares.data());
    for (int step = 1; step <= last; ++step) {
      kernel.update({0, layout.size()},
                    {.learning_rate = 0.01,
                     .gradient_scale = clipped_scale(sum_of(squares), 1.0 / 64, clip_norm),
                     .step = step},
                    params.data(), sum.data(), state0.data(), state1.data());
    }
    CHECK(results[0] == results[1]);
    CHECK(results[0] == params);
  }
}

TEST_CASE("servers killed while they are filled are filled again, whole") {
  EngineSpec spec = spec_of(ServerMode::Async);
  spec.optimizer = {.kind = Optimizer::Adam};
  const Layout layout = test_layout();
  Processes servers(spec, layout, 2, 1);
  std::mt19937 random(31);
  for (unsigned round = 0; round < 10; ++round) {
    std::vector<Arena> arenas, found;
    for (unsigned i = 0; i < 3; ++i) arenas.push_back(random_arena(layout.size(), 3 * round + i));
    std::atomic<int> begun = 0;
    std::thread master([&] {
      ++begun;
      const auto client = required(ServerClient::join(servers.worker(0), layout));
      const std::vector<const float*> all{arenas[0].data(), arenas[1].data(), arenas[2].data()};
      require_ok(client->fill(all, round, round));
      found = std::vector<Arena>(3, Arena(arenas[0].size()));
      for (int i = 0; i < 3; ++i) {
        require_ok(client->read(i, found[static_cast<size_t>(i)].data()));
        CHECK(client->updates() == round);
      }
    });
    while (begun == 0) std::this_thread::yield();
    for (int kill = 0; kill < 3; ++kill) {
      for (auto turns = random() % 3000; turns > 0; --turns) std::this_thread::yield();
      servers.restart(static_cast<int>(random() % 2));
    }
    master.join();
    CHECK(found == arenas);
  }
}

TEST_CASE("sync: worker 0 may still test for longer than the deadline when a server was started again meanwhile") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.deadline_seconds = kStartedWithin;
  const Layout layout = test_layout();
  Processes servers(spec, layout, 2, 2);
  const auto first = join(servers.worker(0), layout);
  const auto second = join(servers.worker(1), layout);
  push_after_deadline(*first, *second, layout, 4, kLongerThanStart, [&] { servers.restart(1); });
}

TEST_CASE("a server has the whole deadline to start again, however long its answer had been waited for") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.deadline_seconds = 6;
  const Layout layout = test_layout();
  Processes servers(spec, layout, 1, 2);
  const auto first = join(servers.worker(0), layout), second = join(servers.worker(1), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size()), others(grads.size());
  const NodeSums left{0, 4, grads.data()}, right{4, 8, grads.data()};
  auto waits = std::async(std::launch::async, [&] { return first->push_step({&left, 1}, {.rows = 1}, 0.1, params.data()); });
  CHECK(waits.wait_for(std::chrono::milliseconds(3500)) == std::future_status::timeout);
  servers.end(0, SIGKILL);
  REQUIRE(waits.wait_for(std::chrono::milliseconds(3500)) == std::future_status::timeout);
  servers.restart(0);
  require_ok(second->push_step({&right, 1}, {.rows = 1}, 0.1, others.data()));
  require_ok(waits.get());
  CHECK(params == others);
}

TEST_CASE("sync with a backup and clip: a server that was started again knows how it applied the step") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.strategy.backup = 1;
  spec.clip_norm = 1;
  spec.deadline_seconds = 6;
  const Layout layout = test_layout();
  Processes servers(spec, layout, 2, 2);
  const auto first = join(servers.worker(0), layout);
  RawWorker dying(servers.worker(1), layout);
  const Arena grads(static_cast<size_t>(layout.size()), -2);
  Arena params(grads.size());
  for (const size_t server : {0, 1}) dying.push(server, 1, {4, 8, grads.data()});
  dying.send(1, {.op = server::ServerOp::Apply, .sequence = 1, .gradient_scale = 0.25});
  CHECK(dying.answer(1).op == server::ServerOp::Data);
  servers.restart(1);
  const NodeSums node{0, 4, grads.data()};
  require_ok(first->push_step({&node, 1}, {.rows = 6}, 1, params.data()));
  CHECK(params == Arena(params.size(), 0.5));
}

TEST_CASE("a worker that comes again to a server that was started again waits for any of the others, not for worker 0") {
  EngineSpec spec = spec_of(ServerMode::Async);
  spec.deadline_seconds = 5;
  const Layout layout = test_layout();
  Processes servers(spec, layout, 1, 3);
  const auto first = join(servers.worker(0), layout);
  const auto second = join(servers.worker(1), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size());
  servers.restart(0);
  ServerClientConfig config = servers.worker(2);
  // Before the other: so the server hears of it first.
  auto socket = Result<Socket>(Error{});
  const auto deadline = Deadline::after(10);
  while (!socket.ok()) socket = Socket::connect(config.servers[0], deadline);
  say_hello(*socket, {.job = job_of(config), .rank = 2, .threads = 1, .layout = layout.hash()});
  require_ok(second->push(grads.data(), 1, -1, params.data()));
  server::Frame answer;
  require_ok(socket->read(&answer, sizeof(answer), deadline));
  CHECK(answer.op == server::ServerOp::Welcome);
}

TEST_CASE("who waits for worker 0 to begin finds a server that was started again, and goes on waiting there") {
  EngineSpec spec = spec_of(ServerMode::Async);
  spec.deadline_seconds = 1;
  const Layout layout = test_layout();
  Processes servers(spec, layout, 1, 3);
  const auto first = required(ServerClient::join(servers.worker(0), layout));
  auto second = std::async(std::launch::async, [&] { return ServerClient::join(servers.worker(1), layout); });
  const auto wait_for_a_deadline = [&] {
    RawWorker third(servers.worker(2), layout, server::ServerOp::Wait);
    for (int i = 0; i < kWaitsADeadline; ++i) CHECK(third.answer(0).op == server::ServerOp::Wait);
  };
  wait_for_a_deadline();
  servers.restart(0);
  wait_for_a_deadline();
  const Arena zeros(static_cast<size_t>(layout.size()));
  const std::vector<const float*> arenas{zeros.data()};
  require_ok(first->fill(arenas, 0, 0));
  CHECK(required(second.get())->pushes() == 0);
}

TEST_CASE("async: what server and worker were killed in the middle of is pushed again, and no part of it counts twice") {
  const Layout layout = test_layout();
  Processes servers(spec_of(ServerMode::Async), layout, 1, 2);
  const auto first = join(servers.worker(0), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size());
  {
    RawWorker dying(servers.worker(1), layout);
    dying.send_part(0, {.op = server::ServerOp::Push, .sequence = 1, .learning_rate = kRate, .gradient_scale = kScale},
                    grads.data(), layout.size() / 2);
    while (params.front() != 1) require_ok(first->pull(params.data()));
    servers.restart(0);
  }
  require_ok(first->pull(params.data()));  // the server hears of worker 0
  const auto again = required(ServerClient::join(servers.worker(1), layout));
  CHECK(again->pushes() == 0);
  require_ok(again->push(grads.data(), kRate, kScale, params.data()));
  CHECK(params == grads);
}

TEST_CASE("SIGTERM ends a server with 0, its state stays until the experiment is done") {
  const Layout layout = test_layout();
  Processes servers(spec_of(ServerMode::Async), layout, 1, 1);
  const auto client = join(servers.worker(0), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size());
  require_ok(client->push(grads.data(), 1, -1, params.data()));
  CHECK(servers.end(0, SIGTERM) == 0);
  CHECK_FALSE(std::filesystem::is_empty(servers.directory()));
  servers.restart(0);
  require_ok(client->pull(params.data()));
  CHECK(params == grads);
  require_ok(client->finish());
  CHECK(servers.end(0, SIGTERM) == 0);
  CHECK_FALSE(std::filesystem::exists(servers.directory()));
}

TEST_CASE("a server that is killed when the experiment is done still serves those who are there, and forgets when it ends") {
  const Layout layout = test_layout();
  Processes servers(spec_of(ServerMode::Async), layout, 1, 2);
  const auto first = join(servers.worker(0), layout);
  const auto second = join(servers.worker(1), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size());
  require_ok(first->finish());
  servers.restart(0);
  require_ok(first->finish());  // as if the answer had been lost
  servers.restart(0);
  require_ok(second->push(grads.data(), 1, -1, params.data()));
  CHECK(params == grads);
  CHECK(servers.end(0, SIGTERM) == 0);
  CHECK_FALSE(std::filesystem::exists(servers.directory()));
}

TEST_CASE("a server that comes back without its state is an error, not a new beginning") {
  const Layout layout = test_layout();
  Processes servers(spec_of(ServerMode::Async), layout, 1, 1);
  const auto client = join(servers.worker(0), layout);
  Arena params(static_cast<size_t>(layout.size()));
  for (const auto& file : std::filesystem::directory_iterator(servers.directory())) {
    std::filesystem::remove(file);
  }
  servers.restart(0);
  const Status pulled = client->pull(params.data());
  REQUIRE_FALSE(pulled.ok());
  CHECK(pulled.error().code == Code::FailedPrecondition);
  CHECK(pulled.error().message.find("without its state") != std::string::npos);
}

TEST_CASE("a server that stays away is named within the deadline") {
  EngineSpec spec = spec_of(ServerMode::Async);
  spec.deadline_seconds = 0.3;
  const Layout layout = test_layout();
  ServerClientConfig config;
  std::unique_ptr<ServerClient> client;
  {
    const Processes servers(spec, layout, 1, 1);
    config = servers.worker(0);
    client = join(config, layout);
  }
  Arena params(static_cast<size_t>(layout.size()));
  const Status pulled = client->pull(params.data());
  REQUIRE_FALSE(pulled.ok());
  CHECK(pulled.error().code == Code::DeadlineExceeded);
  CHECK(pulled.error().message.find("ps 1 at " + config.servers[0]) != std::string::npos);
}

}  // namespace
}  // namespace dtrain::engine
