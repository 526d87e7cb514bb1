#include "engine/server/grpc/tunnel.h"

#include <doctest/doctest.h>

#include "engine/server/grpc/grpc_tunnels.h"
#include "tests/engine/server/servers.h"

namespace dtrain::engine {
namespace {

// Servers that are reached by gRPC alone.
struct Tunnelled {
  Tunnelled(const EngineSpec& given, const Layout& layout, int count, int workers) {
    config.spec = given;
    config.spec.strategy.data_path = DataPath::Grpc;
    config.servers.resize(static_cast<size_t>(count), "127.0.0.1:0");
    config.workers.resize(static_cast<size_t>(workers));
    for (int i = 0; i < count; ++i) {
      servers.push_back(required(Server::open({.index = i,
                                               .servers = config.servers,
                                               .workers = config.workers,
                                               .experiment = config.experiment,
                                               .directory = "",
                                               .spec = config.spec},
                                              {.layout = layout})));
      CHECK(servers.back()->doors().tcp.port() == 0);
      threads.emplace_back([server = servers.back().get()] { CHECK(server->run().ok()); });
      exits.push_back(required(TunnelExit::open("127.0.0.1:0", servers.back()->doors().local_address)));
      addresses.push_back(fmt::format("127.0.0.1:{}", exits.back()->port()));
    }
    config.through = required(grpc_tunnels().open_entrance(addresses));
  }
  ~Tunnelled() {
    config.through = {};
    exits.clear();
    for (const auto& server : servers) server->stop();
    for (std::thread& thread : threads) thread.join();
  }
  ServerClientConfig worker(int rank) const {
    ServerClientConfig of = config;
    of.rank = rank;
    return of;
  }

  ServerClientConfig config;
  std::vector<std::string> addresses;
  std::vector<std::unique_ptr<Server>> servers;
  std::vector<std::thread> threads;
  std::vector<std::unique_ptr<TunnelExit>> exits;
};

TEST_CASE("pushes and pulls go through gRPC") {
  const Layout layout = test_layout();
  const Tunnelled servers(spec_of(ServerMode::Async), layout, 2, 2);
  const auto first = join(servers.worker(0), layout);
  const auto second = join(servers.worker(1), layout);
  const Arena grads(static_cast<size_t>(layout.size()), 1);
  Arena params(grads.size());
  for (int push = 0; push < 5; ++push) {
    require_ok(first->push(grads.data(), 1, -1, params.data()));
    require_ok(second->push(grads.data(), 1, -1, params.data()));
  }
  CHECK(params == Arena(grads.size(), 10));
}

TEST_CASE("a refusal comes through gRPC, and is not the end of the others") {
  const Layout layout = test_layout();
  const Tunnelled servers(spec_of(ServerMode::Async), layout, 1, 2);
  const auto first = join(servers.worker(0), layout);
  ServerClientConfig other = servers.worker(1);
  other.spec.optimizer.momentum = 0.5;
  const auto refused = ServerClient::join(other, layout);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Code::FailedPrecondition);
  Arena params(static_cast<size_t>(layout.size()));
  require_ok(first->pull(params.data()));
}

TEST_CASE("health tells whether the server is there, and a deadline when nothing is") {
  const Layout layout = test_layout();
  const Tunnelled servers(spec_of(ServerMode::Async), layout, 1, 1);
  CHECK(required(tunnel_health(servers.addresses[0], 10)));
  const auto exit = required(TunnelExit::open("127.0.0.1:0", "unix:@dtrain-nobody-is-here"));
  CHECK_FALSE(required(tunnel_health(fmt::format("127.0.0.1:{}", exit->port()), 10)));
  auto closed = required(Listener::open("127.0.0.1", 0));
  const std::string nobody = fmt::format("127.0.0.1:{}", closed.port());
  closed.close();
  CHECK_FALSE(tunnel_health(nobody, 0.2).ok());
}

}  // namespace
}  // namespace dtrain::engine
