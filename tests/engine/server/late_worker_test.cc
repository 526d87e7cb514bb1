// Workers that read their data for longer than the deadline: they listen meanwhile, and are waited for.
#include "servers.h"

namespace dtrain::engine {
namespace {

// So many looks at whether it listens are further apart than a deadline.
constexpr int kLooks = 3;

EngineSpec impatient_spec(ServerMode mode) {
  EngineSpec spec = spec_of(mode);
  spec.deadline_seconds = 1;
  return spec;
}

class LateWorker {
 public:
  std::string address() const { return fmt::format("127.0.0.1:{}", listener_.port()); }
  void wait_for_looks(int count) {
    for (int i = 0; i < count; ++i) CHECK(required(listener_.accept(Deadline::after(10))));
  }
  void end() { listener_.close(); }

 private:
  Listener listener_ = required(Listener::open("127.0.0.1", 0));
};

TEST_CASE("sync: a worker that listens and reads its data is waited for beyond the deadline") {
  const Layout layout = test_layout();
  LateWorker late;
  const Servers servers(impatient_spec(ServerMode::Sync), layout, 1, {"", late.address()});
  const auto first = join(servers.worker(0), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size()), others(grads.size());
  const NodeSums left{0, 4, grads.data()}, right{4, 8, grads.data()};
  auto pushed = std::async(std::launch::async, [&] { return first->push_step({&left, 1}, {.rows = 1}, 1, params.data()); });
  late.wait_for_looks(kLooks);
  const auto second = join(servers.worker(1), layout);
  require_ok(second->push_step({&right, 1}, {.rows = 1}, 1, others.data()));
  require_ok(pushed.get());
  CHECK(params == others);
}

TEST_CASE("sync: a worker that listens no more is named within the deadline") {
  const Layout layout = test_layout();
  LateWorker late;
  const Servers servers(impatient_spec(ServerMode::Sync), layout, 1, {"", late.address()});
  const auto first = join(servers.worker(0), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size());
  const NodeSums node{0, 4, grads.data()};
  auto pushed = std::async(std::launch::async, [&] { return first->push_step({&node, 1}, {.rows = 1}, 1, params.data()); });
  late.wait_for_looks(1);
  late.end();
  const Status done = pushed.get();
  REQUIRE_FALSE(done.ok());
  CHECK_MESSAGE(done.error().message.find(fmt::format("worker 1 at {} (gone) did not push", late.address())) != std::string::npos,
                done.error().message);
}

TEST_CASE("worker 0 is waited for in every mode while it listens and reads its data") {
  for (const ServerMode mode : {ServerMode::Async, ServerMode::Ssp, ServerMode::Sync}) {
    const Layout layout = test_layout();
    LateWorker late;
    const Servers servers(impatient_spec(mode), layout, 2, {late.address(), ""});
    auto second = std::async(std::launch::async, [&] { return ServerClient::join(servers.worker(1), layout); });
    late.wait_for_looks(kLooks);
    const auto first = join(servers.worker(0), layout);
    CHECK(required(second.get())->pushes() == 0);
  }
}

TEST_CASE("a worker 0 that listens no more did not begin") {
  const Layout layout = test_layout();
  LateWorker late;
  const Servers servers(impatient_spec(ServerMode::Async), layout, 1, {late.address(), ""});
  auto second = std::async(std::launch::async, [&] { return ServerClient::join(servers.worker(1), layout); });
  late.wait_for_looks(1);
  late.end();
  const auto joined = second.get();
  REQUIRE_FALSE(joined.ok());
  CHECK_MESSAGE(joined.error().message.find(fmt::format("worker 0 at {} did not begin", late.address())) != std::string::npos,
                joined.error().message);
}

}  // namespace
}  // namespace dtrain::engine
