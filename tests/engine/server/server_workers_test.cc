// Who is there, and who waits for whom.
#include <doctest/doctest.h>

#include <atomic>
#include <future>

#include "tests/engine/server/servers.h"

namespace dtrain::engine {
namespace {

TEST_CASE("ssp: who is too far ahead gets its parameters once the slowest has pushed") {
  EngineSpec spec = spec_of(ServerMode::Ssp);
  spec.strategy.staleness = 2;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 2, 2);
  const auto fast = join(servers.worker(0), layout);
  const auto slow = join(servers.worker(1), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size()), slow_params(grads.size());
  for (int push = 0; push < 2; ++push) {
    require_ok(fast->push(grads.data(), kRate, kScale, params.data()));
  }
  // The third waits for the other's first, and so sees it.
  std::atomic<bool> passed = false;
  std::thread third([&] {
    require_ok(fast->push(grads.data(), kRate, kScale, params.data()));
    passed = true;
  });
  require_ok(slow->push(grads.data(), kRate, kScale, slow_params.data()));
  third.join();
  CHECK(passed);
  CHECK(params.front() == 4);
  CHECK(params.back() == 4);
}

TEST_CASE("ssp: nobody waits for a worker that is lost, nor for one that is done") {
  EngineSpec spec = spec_of(ServerMode::Ssp);
  spec.strategy.staleness = 0;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 1, 3);
  const auto first = join(servers.worker(0), layout);
  auto second = join(servers.worker(1), layout);
  auto third = join(servers.worker(2), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size());
  require_ok(second->push(grads.data(), kRate, kScale, nullptr));
  std::thread waits([&] {
    for (int push = 0; push < 4; ++push) {
      require_ok(first->push(grads.data(), kRate, kScale, params.data()));
    }
  });
  require_ok(third->leave());
  second.reset();
  waits.join();
  CHECK(params.front() == 5);
  // One that takes the lost one's place goes on where the others are.
  const auto again = join(servers.worker(1), layout);
  CHECK(again->pushes() == 4);
}

TEST_CASE("ssp: who says that it lives is waited for, whatever it computes; who is done is not") {
  EngineSpec spec = spec_of(ServerMode::Ssp);
  spec.strategy.staleness = 0;
  spec.deadline_seconds = kWaitedFor;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 1, 3);
  require_ok(join(servers.worker(0), layout)->leave());
  const auto slow = join(servers.worker(1), layout);
  RawWorker fast(servers.worker(2), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena late(grads.size());
  uint64_t pushes = 0;
  const auto push = [&] {
    fast.send(0, {.op = server::ServerOp::Push, .flags = server::kWantsParams, .sequence = ++pushes}, grads.data());
  };
  push();
  for (int i = 0; i < kWaitsADeadline; ++i) CHECK(fast.answer(0).op == server::ServerOp::Wait);
  require_ok(slow->push(grads.data(), kRate, kScale, late.data()));
  server::Frame answer;
  do answer = fast.answer(0);
  while (answer.op == server::ServerOp::Wait);
  CHECK(answer.op == server::ServerOp::Data);
  // It says that it lives as long as it is there.
  require_ok(slow->leave());
  const auto end = Deadline::after(0.5);
  while (!end.expired()) {
    push();
    CHECK(fast.answer(0).op == server::ServerOp::Data);
  }
}

TEST_CASE("workers wait for worker 0 while it makes or reads what it fills the servers with") {
  EngineSpec spec = spec_of(ServerMode::Async);
  spec.deadline_seconds = 1;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 1, 2);
  const auto first = required(ServerClient::join(servers.worker(0), layout));
  RawWorker second(servers.worker(1), layout, server::ServerOp::Wait);
  for (int i = 1; i < kWaitsADeadline; ++i) CHECK(second.answer(0).op == server::ServerOp::Wait);
  const Arena zeros(static_cast<size_t>(layout.size()));
  const std::vector<const float*> arenas{zeros.data()};
  require_ok(first->fill(arenas, 0, 0));
  server::Frame answer;
  do answer = second.answer(0);
  while (answer.op == server::ServerOp::Wait);
  CHECK(answer.op == server::ServerOp::Welcome);
}

TEST_CASE("a worker that waited for worker 0 at one server for longer than the deadline joins the next one as well") {
  EngineSpec spec = spec_of(ServerMode::Async);
  spec.deadline_seconds = 1;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 2, 3);
  const auto first = required(ServerClient::join(servers.worker(0), layout));
  auto second = std::async(std::launch::async, [&] { return ServerClient::join(servers.worker(1), layout); });
  RawWorker third(servers.worker(2), layout, server::ServerOp::Wait);
  for (int i = 0; i < kWaitsADeadline; ++i) CHECK(third.answer(0).op == server::ServerOp::Wait);
  const Arena zeros(static_cast<size_t>(layout.size()));
  const std::vector<const float*> arenas{zeros.data()};
  require_ok(first->fill(arenas, 0, 0));
  CHECK(required(second.get())->pushes() == 0);
}

TEST_CASE("leaves are those of the workers' threads, of which all have as many") {
  const Layout layout = test_layout();
  const Servers servers(spec_of(ServerMode::Sync), layout, 1, 2);
  ServerClientConfig first = servers.worker(0), second = servers.worker(1);
  first.threads = 8;
  const auto client = join(first, layout);
  const auto refused = ServerClient::join(second, layout);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("worker 1") != std::string::npos);
  CHECK(refused.error().message.find(" has 1 threads, and others have 8") != std::string::npos);
  second.threads = 8;
  const auto other = required(ServerClient::join(second, layout));
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size()), others(grads.size());
  const NodeSums left{0, 8, grads.data()}, right{8, 16, grads.data()};
  auto pushed = std::async(std::launch::async, [&] { return other->push_step({&right, 1}, {.rows = 1}, 1, others.data()); });
  require_ok(client->push_step({&left, 1}, {.rows = 1}, 1, params.data()));
  require_ok(pushed.get());
  CHECK(params.front() == -1);
}

TEST_CASE("sync: more threads than a step's tree has leaves for are refused, and cost the others nothing") {
  const Layout layout = test_layout();
  const Servers servers(spec_of(ServerMode::Sync), layout, 1, 2);
  const ServerClientConfig config = servers.worker(0);
  for (const uint64_t threads : {uint64_t{1} << 32, ~uint64_t{0}, uint64_t{16385}}) {
    auto socket = required(Socket::connect(config.servers[0], Deadline::after(10)));
    say_hello(socket, {.flags = server::kMaster, .job = job_of(config), .generation = 1, .threads = threads,
                       .layout = layout.hash()});
    server::Frame answer;
    require_ok(socket.read(&answer, sizeof(answer), Deadline::after(10)));
    CHECK(answer.op == server::ServerOp::Failure);
    CHECK(static_cast<Code>(answer.code) == Code::InvalidArgument);
  }
  join(config, layout);
}

TEST_CASE("async: workers may have as many threads as they like") {
  const Layout layout = test_layout();
  const Servers servers(spec_of(ServerMode::Async), layout, 1, 2);
  ServerClientConfig first = servers.worker(0), second = servers.worker(1);
  first.threads = 8;
  const auto client = join(first, layout);
  CHECK(required(ServerClient::join(second, layout))->deal() == 1);
}

TEST_CASE("parts are dealt to whoever pushes, and one who comes again goes on with what it had") {
  const Layout layout = test_layout();
  const Servers servers(spec_of(ServerMode::Async), layout, 2, 3);
  const Arena zeros(static_cast<size_t>(layout.size()));
  Arena params(zeros.size());
  const auto push = [&](ServerClient& worker) { require_ok(worker.push(zeros.data(), kRate, kScale, params.data())); };
  const auto first = join(servers.worker(0), layout);
  auto second = required(ServerClient::join(servers.worker(1), layout));
  CHECK(first->deal() == 0);
  CHECK(second->deal() == 1);
  for (uint64_t part : {2, 3, 4}) {
    push(*first);
    CHECK(first->deal() == part);
  }
  push(*second);
  CHECK(second->deal() == 5);
  second.reset();
  push(*first);
  second = required(ServerClient::join(servers.worker(1), layout));
  CHECK(second->deal() == 5);
  CHECK(required(ServerClient::join(servers.worker(2), layout))->deal() == 7);
  require_ok(first->push(zeros.data(), kRate, kScale, nullptr));
  CHECK(first->deal() == 8);
}

TEST_CASE("worker 0 is dealt the first part, though others came before it has filled the servers") {
  EngineSpec spec = spec_of(ServerMode::Async);
  spec.deadline_seconds = 3;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 1, 2);
  const Arena zeros(static_cast<size_t>(layout.size()));
  const std::vector<const float*> arenas{zeros.data()};
  const auto first = required(ServerClient::join(servers.worker(0), layout));
  RawWorker second(servers.worker(1), layout, server::ServerOp::Wait);
  require_ok(first->fill(arenas, 0, 0));
  CHECK(first->deal() == 0);
  server::Frame answer;
  do answer = second.answer(0);
  while (answer.op == server::ServerOp::Wait);
  CHECK(answer.op == server::ServerOp::Welcome);
  CHECK(answer.deal == 1);
}

TEST_CASE("others wait when they are so many parts ahead of worker 0, as long as it is there") {
  EngineSpec spec = spec_of(ServerMode::Async);
  spec.deadline_seconds = 3;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 1, 2, 2);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size());
  auto first = join(servers.worker(0), layout);
  RawWorker second(servers.worker(1), layout);
  uint64_t pushes = 0;
  const auto push = [&](uint64_t part) {
    second.send(0, {.op = server::ServerOp::Push, .flags = server::kWantsParams, .sequence = ++pushes, .deal = part}, grads.data());
  };
  const auto next = [&] {
    server::Frame answer;
    do answer = second.answer(0);
    while (answer.op == server::ServerOp::Wait);
    CHECK(answer.op == server::ServerOp::Data);
    return answer.deal;
  };
  CHECK(first->deal() == 0);
  push(1);
  for (int i = 0; i < kWaitsADeadline; ++i) CHECK(second.answer(0).op == server::ServerOp::Wait);
  require_ok(first->push(grads.data(), kRate, kScale, params.data()));
  CHECK(first->deal() == 3);
  CHECK(next() == 2);
  push(2);
  CHECK(next() == 4);
  push(4);
  CHECK(second.answer(0).op == server::ServerOp::Wait);
  first.reset();
  CHECK(next() == 5);
}

TEST_CASE("others don't come to the end before worker 0 has begun the last epoch, however short that is") {
  EngineSpec spec = spec_of(ServerMode::Async);
  spec.deadline_seconds = 3;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 1, 2, 20, {}, {4, 8});
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size());
  const auto first = join(servers.worker(0), layout);
  RawWorker second(servers.worker(1), layout);
  const auto push = [&](uint64_t part) {
    second.send(0, {.op = server::ServerOp::Push, .flags = server::kWantsParams, .sequence = part, .deal = part}, grads.data());
    return second.answer(0);
  };
  for (uint64_t part = 1; part < 5; ++part) CHECK(push(part).deal == part + 1);
  CHECK(push(5).op == server::ServerOp::Wait);  // of 6 and 7 it would leave worker 0 none
  require_ok(first->push(grads.data(), kRate, kScale, params.data()));
  CHECK(first->deal() == 7);
  server::Frame answer;
  do answer = second.answer(0);
  while (answer.op == server::ServerOp::Wait);
  CHECK(answer.deal == 6);
}

TEST_CASE("others wait for worker 0 where the first of the servers holds nothing, too") {
  EngineSpec spec = spec_of(ServerMode::Async);
  spec.deadline_seconds = 3;
  Layout layout;
  layout.add({.name = "a", .shape = {5000}});
  const Servers servers(spec, layout, 3, 2, 2);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  const auto first = join(servers.worker(0), layout);
  RawWorker second(servers.worker(1), layout);
  second.send(1, {.op = server::ServerOp::Push, .flags = server::kWantsParams, .sequence = 1, .deal = 1}, grads.data());
  CHECK(second.answer(1).op == server::ServerOp::Wait);
}

TEST_CASE("worker 0 hears what all have learned from") {
  const Layout layout = test_layout();
  const Arena zeros(static_cast<size_t>(layout.size()));
  Arena params(zeros.size());
  const Servers async(spec_of(ServerMode::Async), layout, 2, 2);
  const auto first = join(async.worker(0), layout);
  const auto second = required(ServerClient::join(async.worker(1), layout));
  require_ok(second->push(zeros.data(), kRate, kScale, params.data(), {.loss = 3, .rows = 2}));
  require_ok(first->push(zeros.data(), kRate, kScale, params.data(), {.loss = 1.5, .rows = 4}));
  CHECK(first->learned().loss == 4.5);
  CHECK(first->learned().rows == 6);

  const Servers sync(spec_of(ServerMode::Sync), layout, 2, 2);
  const auto left = join(sync.worker(0), layout);
  const auto right = required(ServerClient::join(sync.worker(1), layout));
  for (int step = 1; step <= 2; ++step) {
    const NodeSums of_left{0, 4, zeros.data()}, of_right{4, 8, zeros.data()};
    Arena others(zeros.size());
    auto pushed = std::async(std::launch::async, [&] {
      return right->push_step({&of_right, 1}, {.loss = 1, .rows = 5}, 1, others.data());
    });
    require_ok(left->push_step({&of_left, 1}, {.loss = 2, .rows = 3}, 1, params.data()));
    require_ok(pushed.get());
    CHECK(left->learned().loss == 3 * step);
    CHECK(left->learned().rows == 8 * step);
  }
}

TEST_CASE("ssp: a worker that waits at one server is not missed by the others") {
  EngineSpec spec = spec_of(ServerMode::Ssp);
  spec.deadline_seconds = 3;
  spec.strategy.staleness = 0;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 2, 2);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size());
  const auto first = join(servers.worker(0), layout);
  RawWorker second(servers.worker(1), layout);
  const auto push = [&](size_t server, uint64_t sequence) {
    second.send(server, {.op = server::ServerOp::Push, .flags = server::kWantsParams, .sequence = sequence}, grads.data());
  };
  auto waits = std::async(std::launch::async, [&] { return first->push(grads.data(), kRate, kScale, params.data()); });
  push(1, 1);
  server::Frame answer;
  do answer = second.answer(1);
  while (answer.op == server::ServerOp::Wait);
  push(1, 2);
  // At server 0 the first one waits for the second, at server 1 the second for the first: for longer than one may be
  // silent.
  for (int i = 0; i < kWaitsADeadline / 2; ++i) {
    second.send(0, {.op = server::ServerOp::Heartbeat});
    CHECK(second.answer(1).op == server::ServerOp::Wait);
  }
  push(0, 1);
  require_ok(waits.get());
}

TEST_CASE("worker 0 ends with the last pushes of one who had lost its connection") {
  EngineSpec spec = spec_of(ServerMode::Async);
  spec.deadline_seconds = 60;  // it may come back for a tenth
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 1, 2);
  const Arena ones(static_cast<size_t>(layout.size()), 1);
  Arena params(ones.size());
  const auto first = join(servers.worker(0), layout);
  auto second = required(ServerClient::join(servers.worker(1), layout));
  second.reset();
  auto ending = std::async(std::launch::async, [&] { return first->pull_last(params.data()); });
  second = required(ServerClient::join(servers.worker(1), layout));
  for (int i = 0; i < 3; ++i) require_ok(second->push(ones.data(), kRate, kScale, nullptr));
  require_ok(second->leave());
  require_ok(ending.get());
  CHECK(params == Arena(ones.size(), 3));
}

TEST_CASE("worker 0 ends with the last push of one who lives, for however long that is computed") {
  EngineSpec spec = spec_of(ServerMode::Async);
  spec.deadline_seconds = 3;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 1, 2);
  const Arena ones(static_cast<size_t>(layout.size()), 1);
  join(servers.worker(0), layout);  // fills the servers
  RawWorker first(servers.worker(0), layout);
  const auto second = required(ServerClient::join(servers.worker(1), layout));
  first.send(0, {.op = server::ServerOp::Pull, .flags = server::kEnds});
  for (int i = 0; i < kWaitsADeadline; ++i) CHECK(first.answer(0).op == server::ServerOp::Wait);
  require_ok(second->push(ones.data(), kRate, kScale, nullptr));
  require_ok(second->leave());
  server::Frame answer;
  do answer = first.answer(0);
  while (answer.op == server::ServerOp::Wait);
  CHECK(answer.op == server::ServerOp::Data);
  CHECK(answer.updates == 1);
}

TEST_CASE("worker 0 ends with the last pushes of the others, but for who is gone or silent") {
  for (const ServerMode mode : {ServerMode::Async, ServerMode::Ssp}) {
    EngineSpec spec = spec_of(mode);
    spec.deadline_seconds = 3;
    spec.strategy.staleness = 1;
    const Layout layout = test_layout();
    const Servers servers(spec, layout, 2, 4);  // worker 3 never comes
    const Arena ones(static_cast<size_t>(layout.size()), 1);
    Arena params(ones.size()), others(ones.size());
    const auto first = join(servers.worker(0), layout);
    const auto second = required(ServerClient::join(servers.worker(1), layout));
    auto third = required(ServerClient::join(servers.worker(2), layout));
    third.reset();
    auto ending = std::async(std::launch::async, [&] { return first->pull_last(params.data()); });
    // Which does not keep them, either.
    for (int i = 0; i < 3; ++i) require_ok(second->push(ones.data(), kRate, kScale, others.data()));
    require_ok(second->leave());
    require_ok(ending.get());
    CHECK(params == Arena(ones.size(), 3));

    const RawWorker silent(servers.worker(1), layout);
    require_ok(first->pull_last(params.data()));
    CHECK(params == Arena(ones.size(), 3));
  }
}

TEST_CASE("who connects and says nothing makes room for the workers") {
  EngineSpec spec = spec_of(ServerMode::Async);
  spec.deadline_seconds = 4;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 1, 1);
  ServerClientConfig config = servers.worker(0);
  config.local_sockets = false;
  std::vector<Socket> strangers;
  for (int i = 0; i < 80; ++i) {
    strangers.push_back(required(Socket::connect(config.servers[0], Deadline::after(10))));
  }
  const auto client = join(config, layout);
  CHECK(client->pushes() == 0);
}

TEST_CASE("sync: the error names the worker that is gone") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.deadline_seconds = 2;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 1, 2);
  const auto first = join(servers.worker(0), layout);
  auto second = join(servers.worker(1), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size());
  const NodeSums node{0, 4, grads.data()};
  second.reset();
  const Status pushed = first->push_step({&node, 1}, {.rows = 1}, 0.1, params.data());
  REQUIRE_FALSE(pushed.ok());
  CHECK(pushed.error().message.find("worker 1 (gone) did not push") != std::string::npos);
  CHECK(pushed.error().message.find("ps 1 at 127.0.0.1:") == 0);
}

TEST_CASE("sync: the error names the worker that is there but says nothing") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.deadline_seconds = 1;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 1, 2);
  const auto first = join(servers.worker(0), layout);
  const RawWorker silent(servers.worker(1), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size());
  const NodeSums node{0, 4, grads.data()};
  const Status pushed = first->push_step({&node, 1}, {.rows = 1}, 0.1, params.data());
  REQUIRE_FALSE(pushed.ok());
  CHECK_MESSAGE(pushed.error().message.find("worker 1") != std::string::npos, pushed.error().message);
}

TEST_CASE("sync: worker 0 may test and write for longer than the deadline") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.deadline_seconds = kWaitedFor;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 2, 2);
  const auto first = join(servers.worker(0), layout);
  const auto second = join(servers.worker(1), layout);
  push_after_deadline(*first, *second, layout, 4);
}

TEST_CASE("sync: whose gradients still come is waited for longer than the deadline") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.deadline_seconds = kWaitedFor;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 1, 2);
  const auto first = join(servers.worker(0), layout);
  RawWorker slow(servers.worker(1), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size());
  const NodeSums left{0, 4, grads.data()};
  auto waits = std::async(std::launch::async, [&] { return first->push_step({&left, 1}, {.rows = 1}, 0.1, params.data()); });
  slow.send(0,
            {.op = server::ServerOp::Node,
             .flags = server::kLast,
             .sequence = 1,
             .learning_rate = 0.1,
             .samples = 1,
             .leaf_begin = 4,
             .leaf_end = 8},
            grads.data(), kWaitsADeadline, [&] { CHECK(waits.wait_for(kLonger / 5) == std::future_status::timeout); });
  require_ok(waits.get());
}

TEST_CASE("sync with a backup: worker 0 may test for longer than the deadline when the backup is gone too") {
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.strategy.backup = 1;
  spec.deadline_seconds = kWaitedFor;
  const Layout layout = test_layout();
  const Servers servers(spec, layout, 2, 3);
  const auto first = join(servers.worker(0), layout);
  const auto second = join(servers.worker(1), layout);
  join(servers.worker(2), layout).reset();
  push_after_deadline(*first, *second, layout, 2);
}

TEST_CASE("workers of another configuration, with other data or of an unknown rank are refused") {
  const Layout layout = test_layout();
  const Servers servers(spec_of(ServerMode::Async), layout, 1, 2);
  const auto first = join(servers.worker(0), layout);
  ServerClientConfig other = servers.worker(1);
  other.spec.optimizer.momentum = 0.5;
  const auto refused = ServerClient::join(other, layout);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Code::FailedPrecondition);
  ServerClientConfig older = servers.worker(1);
  older.data.hash = 7;
  const auto mixed = ServerClient::join(older, layout);
  REQUIRE_FALSE(mixed.ok());
  CHECK(mixed.error().code == Code::FailedPrecondition);
  const auto unknown = ServerClient::join(servers.worker(2), layout);
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().code == Code::InvalidArgument);
}

TEST_CASE("workers and servers are of one experiment wherever each of them finds the data") {
  const Layout layout = test_layout();
  EngineSpec here = spec_of(ServerMode::Async), there = here;
  here.train_data = "/data/mnist/train";
  there.train_data = "/var/launches/7/data/mnist/train";
  there.test_data = "/var/launches/7/data/mnist/test";
  there.checkpoint_from = "/var/launches/7/data/start";
  CHECK(server_job("7", here, 2, 3) == server_job("7", there, 2, 3));
  there.batch = here.batch + 1;
  CHECK(server_job("7", here, 2, 3) != server_job("7", there, 2, 3));
}

TEST_CASE("a worker 0 that begins anew fills the servers anew; those before it are told") {
  const Layout layout = test_layout();
  const Servers servers(spec_of(ServerMode::Async), layout, 2, 2);
  Arena grads(static_cast<size_t>(layout.size()), 1), params(grads.size());
  ServerClientConfig before = servers.worker(0);
  before.attempt = 3;
  auto first = join(before, layout);
  before.rank = 1;
  const auto second = join(before, layout);
  require_ok(first->push(grads.data(), kRate, kScale, params.data()));
  first.reset();

  ServerClientConfig older = servers.worker(0);
  older.attempt = 2;
  const auto straggler = ServerClient::join(older, layout);
  REQUIRE_FALSE(straggler.ok());
  CHECK(straggler.error().message.find("earlier attempt") != std::string::npos);

  ServerClientConfig next = servers.worker(0);
  next.attempt = 4;
  const auto anew = join(next, layout);
  const Status stale = second->push(grads.data(), kRate, kScale, params.data());
  REQUIRE_FALSE(stale.ok());
  CHECK(stale.error().code == Code::Aborted);
  require_ok(anew->pull(params.data()));
  CHECK(params.front() == 0);
}

TEST_CASE("sync: who was there before worker 0 began anew is waited for like one that comes for the first time") {
  const Layout layout = test_layout();
  EngineSpec spec = spec_of(ServerMode::Sync);
  spec.deadline_seconds = 1;
  const Servers servers(spec, layout, 1, 2);
  {
    const auto first = join(servers.worker(0), layout);
    const auto second = required(ServerClient::join(servers.worker(1), layout));
  }
  ServerClientConfig next = servers.worker(0);
  next.attempt = 1;
  const auto anew = join(next, layout);
  Arena grads(static_cast<size_t>(layout.size()), 1), params(grads.size());
  const NodeSums node{0, 4, grads.data()};
  const auto began = Deadline::Clock::now();
  const Status pushed = anew->push_step({&node, 1}, {.rows = 1}, 1, params.data());
  REQUIRE_FALSE(pushed.ok());
  CHECK(pushed.error().message.find("worker 1 (gone) did not push") != std::string::npos);
  CHECK(Deadline::Clock::now() - began > std::chrono::milliseconds(500));  // not a tenth of the deadline
}

TEST_CASE("a worker that comes later, or again, knows where the master began and how far it was itself") {
  const Layout layout = test_layout();
  const Servers servers(spec_of(ServerMode::Async), layout, 2, 2);
  const Arena zeros(static_cast<size_t>(layout.size()));
  Arena params(zeros.size());
  const auto first = required(ServerClient::join(servers.worker(0), layout));
  const std::vector<const float*> arenas{zeros.data()};
  require_ok(first->fill(arenas, 500, 300));  // of a checkpoint
  CHECK(first->begun_at() == 300);
  auto second = required(ServerClient::join(servers.worker(1), layout));
  CHECK(second->begun_at() == 300);
  CHECK(second->pushes() == 0);
  for (int i = 0; i < 5; ++i) {
    require_ok(first->push(zeros.data(), kRate, kScale, params.data()));
    if (i < 3) require_ok(second->push(zeros.data(), kRate, kScale, params.data()));
  }
  second.reset();
  second = required(ServerClient::join(servers.worker(1), layout));
  CHECK(second->begun_at() == 300);
  // With the slowest of the others, who would wait for it otherwise, or where it was.
  CHECK(second->pushes() >= 3);
  CHECK(second->pushes() <= 5);
  CHECK(second->updates() == 508);
}

}  // namespace
}  // namespace dtrain::engine
