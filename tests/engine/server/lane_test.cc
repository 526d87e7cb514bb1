#include "engine/server/lane.h"

#include <doctest/doctest.h>

#include <thread>

#include "engine/norm.h"

namespace dtrain::engine::server {
namespace {

TEST_CASE("an answer that says it is longer than it can be is refused, whatever it would take to hold it") {
  for (const ServerOp op : {ServerOp::Squares, ServerOp::Data, ServerOp::Failure, ServerOp::Ack}) {
    for (const uint64_t payload : {uint64_t{16}, uint64_t{1} << 40, ~uint64_t{0}}) {
      CAPTURE(static_cast<int>(op));
      CAPTURE(payload);
      if (op == ServerOp::Failure && payload <= kLongestText) continue;
      auto listener = Listener::open("127.0.0.1", 0);
      REQUIRE(listener.ok());
      const auto deadline = Deadline::after(10);
      std::thread server([&] {
        auto socket = listener->accept(deadline);
        CHECK(socket.ok());
        Frame hello;
        CHECK(socket->read(&hello, sizeof(hello), deadline).ok());
        const Frame answers[] = {{.op = ServerOp::Welcome}, {.op = op, .payload = payload}};
        CHECK(socket->write(answers, sizeof(answers), deadline).ok());
      });
      float params[4];
      Lane lane(fmt::format("127.0.0.1:{}", listener->port()), "ps 1", {0, 4 * kBlock});
      auto connecting = deadline;
      CHECK(lane.connect({.local_sockets = false}, connecting).ok());
      server.join();
      lane.data_to(params);
      lane.ask({{.frame = {.op = ServerOp::Pull}}});
      const Status advanced = lane.advance(true, false);
      REQUIRE_FALSE(advanced.ok());
      CHECK(advanced.error().code == Code::DataLoss);
    }
  }
}

}  // namespace
}  // namespace dtrain::engine::server
