// Servers of which one has what another has not.
#include <doctest/doctest.h>

#include <cmath>
#include <future>

#include "engine/server/server.h"
#include "engine/server/shards.h"
#include "tests/engine/server/servers.h"

namespace dtrain::engine {
namespace {

// A worker's connections, by which it pushes to some servers and not to others.
class UnevenWorker {
 public:
  UnevenWorker(const ServerClientConfig& config, const Layout& layout)
      : config_(config), ranges_(shards_of(layout.size(), static_cast<int>(config.servers.size()))) {
    for (const std::string& address : config.servers) {
      auto socket = required(Socket::connect(address, deadline()));
      const server::Frame hello{.op = server::Op::Hello,
                                .job = server_job(config.experiment, config.spec, layout, config.servers.size(),
                                                  config.workers.size()),
                                .rank = static_cast<uint32_t>(config.rank),
                                .samples = 1};
      require_ok(socket.write(&hello, sizeof(hello), deadline()));
      CHECK(answer(socket).op == server::Op::Welcome);
      sockets_.push_back(std::move(socket));
    }
  }
  // Returns once the server has done the step, or says its squares.
  void push(size_t server, uint64_t step, const NodeSums& node) {
    send(server,
         {.op = server::Op::Node,
          .flags = server::kLast,
          .sequence = step,
          .learning_rate = 1,
          .samples = 2,
          .leaf_begin = static_cast<uint16_t>(node.begin),
          .leaf_end = static_cast<uint16_t>(node.end)},
         node.values);
    CHECK(answer(server).sequence == step);
  }
  void send(size_t server, server::Frame frame, const float* values = nullptr) {
    Socket& socket = sockets_[server];
    const Range range = ranges_[server];
    frame.rank = static_cast<uint32_t>(config_.rank);
    frame.payload = values == nullptr ? 0 : static_cast<uint64_t>(range.size()) * sizeof(float);
    require_ok(socket.write(&frame, sizeof(frame), deadline()));
    if (values != nullptr) require_ok(socket.write(values + range.begin, frame.payload, deadline()));
  }
  server::Frame answer(size_t server) {
    const server::Frame frame = answer(sockets_[server]);
    text.resize(frame.payload);
    require_ok(sockets_[server].read(text.data(), text.size(), deadline()));
    return frame;
  }
  std::string text;  // of the last answer

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

TEST_CASE("sync with a backup: a step that one server did without a worker is not left out at the others, who need it") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.strategy.backup = 1;
  spec.deadline_seconds = 5;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 2, 3);
  const auto first = join(servers.worker(0), layout);
  const auto slow = join(servers.worker(1), layout);
  UnevenWorker dying(servers.worker(2), layout);
  const Arena grads(static_cast<size_t>(layout.size()), -2);
  Arena params(grads.size()), late(grads.size());
  const auto push_first = [&] {
    const NodeSums node{0, 2, grads.data()};
    return std::async(std::launch::async, [&, node] { return first->push_step({&node, 1}, 2, 1, params.data()); });
  };
  const NodeSums of_slow{2, 4, grads.data()}, of_dying{4, 8, grads.data()};
  auto step1 = push_first();
  dying.push(0, 1, of_dying);
  dying.push(1, 1, of_dying);
  require_ok(step1.get());
  // It is stopped after the first server had its gradients.
  auto step2 = push_first();
  dying.push(0, 2, of_dying);
  require_ok(slow->push_step({&of_slow, 1}, 2, 1, late.data()));
  CHECK(slow->pushes() == 1);
  require_ok(slow->push_step({&of_slow, 1}, 2, 1, late.data()));
  CHECK(slow->pushes() == 2);
  require_ok(step2.get());
  CHECK(late == params);
}

TEST_CASE("sync with a backup and clip: a step goes on without the worker that had told only some servers to apply it") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.strategy.backup = 1;
  spec.clip_norm = 1;
  spec.deadline_seconds = 6;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 2, 2);
  const auto first = join(servers.worker(0), layout);
  UnevenWorker dying(servers.worker(1), layout);
  const Arena grads(static_cast<size_t>(layout.size()), -2);
  Arena params(grads.size());
  for (const size_t server : {0, 1}) dying.push(server, 1, {4, 8, grads.data()});
  dying.send(1, {.op = server::Op::Apply, .sequence = 1, .gradient_scale = 0.25});
  CHECK(dying.answer(1).op == server::Op::Data);
  const NodeSums node{0, 4, grads.data()};
  require_ok(first->push_step({&node, 1}, 6, 1, params.data()));
  CHECK(params == Arena(params.size(), 0.5));
}

TEST_CASE("sync with a backup and clip: the norm is that of means over other samples at each server") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.strategy.backup = 1;
  spec.clip_norm = 1;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 2, 2);
  const auto first = join(servers.worker(0), layout);
  UnevenWorker other(servers.worker(1), layout);
  const Arena of_six(static_cast<size_t>(layout.size()), -6), of_two(of_six.size(), -2);
  Arena params(of_six.size());
  other.push(1, 1, {4, 8, of_two.data()});
  const NodeSums node{0, 4, of_six.data()};
  require_ok(first->push_step({&node, 1}, 6, 1, params.data()));
  const double expected = 1 / std::sqrt(static_cast<double>(layout.size()));
  CHECK(params.front() == doctest::Approx(expected));
  CHECK(params.back() == doctest::Approx(expected));
}

TEST_CASE("sync with a backup and clip: a step may be one of workers who had no samples") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.strategy.backup = 1;
  spec.clip_norm = 1;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 2, 2);
  const auto first = join(servers.worker(0), layout);
  const Arena zeros(static_cast<size_t>(layout.size()));
  Arena params(zeros.size(), 1);
  const NodeSums node{0, 4, zeros.data()};
  require_ok(first->push_step({&node, 1}, 0, 1, params.data()));
  CHECK(params == zeros);
}

TEST_CASE("sync with clip: the error names who was to apply the step") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.strategy.backup = 1;
  spec.clip_norm = 1;
  spec.deadline_seconds = 1;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 1, 3);
  join(servers.worker(0), layout).reset();
  UnevenWorker waits(servers.worker(1), layout), stopped(servers.worker(2), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  stopped.send(0, {.op = server::Op::Node, .flags = server::kLast, .sequence = 1, .leaf_begin = 4, .leaf_end = 8}, grads.data());
  waits.push(0, 1, {2, 4, grads.data()});
  waits.send(0, {.op = server::Op::Apply, .sequence = 1});
  server::Frame answer;
  do answer = waits.answer(0); while (answer.op == server::Op::Wait);
  CHECK(answer.op == server::Op::Failure);
  CHECK_MESSAGE(waits.text.find("worker 0 (gone), worker 2 did not apply") == 0, waits.text);
}

TEST_CASE("ssp: who comes again, with the servers not equally far, does not wait for itself") {
  EngineSpec spec = spec_of(ServerMode::Ssp);
  spec.strategy.staleness = 0;
  spec.deadline_seconds = 6;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 2, 3);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size());
  const auto first = join(servers.worker(0), layout);
  require_ok(first->leave());
  require_ok(join(servers.worker(1), layout)->leave());
  UnevenWorker other(servers.worker(2), layout);
  const auto push = [&](size_t server, uint64_t sequence) {
    other.send(server, {.op = server::Op::Push, .sequence = sequence, .learning_rate = 1, .gradient_scale = -1},
               grads.data());
    CHECK(other.answer(server).op == server::Op::Ack);
  };
  push(0, 1);
  push(1, 1);
  push(1, 2);
  const auto again = required(ServerClient::join(servers.worker(1), layout));
  CHECK(again->pushes() == 2);
  push(0, 2);
  require_ok(again->pull(params.data()));
  CHECK(params == Arena(params.size(), 2));
}

}  // namespace
}  // namespace dtrain::engine
