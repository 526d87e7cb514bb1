// Servers of which one has what another has not.
#include <doctest/doctest.h>

#include <cmath>
#include <future>

#include "tests/engine/server/servers.h"

namespace dtrain::engine {
namespace {

TEST_CASE("sync with a backup: a step that one server did without a worker is not left out at the others, who need it") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.strategy.backup = 1;
  spec.deadline_seconds = 5;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 2, 3);
  const auto first = join(servers.worker(0), layout);
  const auto slow = join(servers.worker(1), layout);
  RawWorker dying(servers.worker(2), layout);
  const Arena grads(static_cast<size_t>(layout.size()), -2);
  Arena params(grads.size()), late(grads.size());
  const auto push_first = [&] {
    const NodeSums node{0, 2, grads.data()};
    return std::async(std::launch::async, [&, node] { return first->push_step({&node, 1}, {.rows = 2}, 1, params.data()); });
  };
  const NodeSums of_slow{2, 4, grads.data()}, of_dying{4, 8, grads.data()};
  auto step1 = push_first();
  dying.push(0, 1, of_dying);
  dying.push(1, 1, of_dying);
  require_ok(step1.get());
  // It is stopped after the first server had its gradients.
  auto step2 = push_first();
  dying.push(0, 2, of_dying);
  require_ok(slow->push_step({&of_slow, 1}, {.rows = 2}, 1, late.data()));
  CHECK(slow->pushes() == 1);
  require_ok(slow->push_step({&of_slow, 1}, {.rows = 2}, 1, late.data()));
  CHECK(slow->pushes() == 2);
  require_ok(step2.get());
  CHECK(late == params);
}

TEST_CASE("sync with a backup: the step after one that is saved waits for worker 0, so that what it reads is of one step") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.strategy.backup = 1;
  spec.deadline_seconds = 6;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 2, 2);
  const auto first = join(servers.worker(0), layout);
  RawWorker other(servers.worker(1), layout);
  const Arena grads(static_cast<size_t>(layout.size()), -2);
  Arena params(grads.size());
  const NodeSums of_first{0, 4, grads.data()}, of_other{4, 8, grads.data()};
  for (const size_t server : {0, 1}) other.push(server, 1, of_other);
  require_ok(first->push_step({&of_first, 1}, {.rows = 2}, 1, params.data()));
  const auto push = [&](uint64_t step) {
    for (const size_t server : {0, 1}) {
      other.send(server,
                 {.op = server::ServerOp::Node,
                  .flags = server::kLast | server::kNeedsFirst,
                  .sequence = step,
                  .learning_rate = 1,
                  .samples = 2,
                  .leaf_begin = 4,
                  .leaf_end = 8},
                 grads.data());
    }
    for (const size_t server : {0, 1}) CHECK(other.answer(server).op == server::ServerOp::Wait);
  };
  const auto goes_on_to = [&](uint64_t step) {
    for (const size_t server : {0, 1}) {
      server::Frame answer;
      do answer = other.answer(server);
      while (answer.op == server::ServerOp::Wait);
      CHECK(answer.op == server::ServerOp::Data);
      CHECK(answer.sequence == step);
    }
  };
  const Arena saved = params;
  push(2);
  require_ok(first->read(0, params.data()));
  CHECK(params == saved);
  require_ok(first->let_go());
  goes_on_to(2);
  push(3);
  require_ok(first->push_step({&of_first, 1}, {.rows = 2}, 1, params.data()));
  CHECK(first->pushes() == 2);
  require_ok(first->push_step({&of_first, 1}, {.rows = 2}, 1, params.data(), true));
  goes_on_to(3);
}

TEST_CASE("sync with a backup and clip: a step goes on without the worker that had told only some servers to apply it") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.strategy.backup = 1;
  spec.clip_norm = 1;
  spec.deadline_seconds = 6;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 2, 2);
  const auto first = join(servers.worker(0), layout);
  RawWorker dying(servers.worker(1), layout);
  const Arena grads(static_cast<size_t>(layout.size()), -2);
  Arena params(grads.size());
  for (const size_t server : {0, 1}) dying.push(server, 1, {4, 8, grads.data()});
  dying.send(1, {.op = server::ServerOp::Apply, .sequence = 1, .gradient_scale = 0.25});
  CHECK(dying.answer(1).op == server::ServerOp::Data);
  const NodeSums node{0, 4, grads.data()};
  require_ok(first->push_step({&node, 1}, {.rows = 6}, 1, params.data()));
  CHECK(params == Arena(params.size(), 0.5));
}

TEST_CASE("sync with a backup and clip: the norm is that of means over other samples at each server") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.strategy.backup = 1;
  spec.clip_norm = 1;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 2, 2);
  const auto first = join(servers.worker(0), layout);
  RawWorker other(servers.worker(1), layout);
  const Arena of_six(static_cast<size_t>(layout.size()), -6), of_two(of_six.size(), -2);
  Arena params(of_six.size());
  other.push(1, 1, {4, 8, of_two.data()});
  const NodeSums node{0, 4, of_six.data()};
  require_ok(first->push_step({&node, 1}, {.rows = 6}, 1, params.data()));
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
  require_ok(first->push_step({&node, 1}, {.rows = 0}, 1, params.data()));
  CHECK(params == zeros);
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
  RawWorker other(servers.worker(2), layout);
  const auto push = [&](size_t server, uint64_t sequence) {
    other.send(server, {.op = server::ServerOp::Push, .sequence = sequence, .learning_rate = 1, .gradient_scale = -1},
               grads.data());
    CHECK(other.answer(server).op == server::ServerOp::Ack);
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
