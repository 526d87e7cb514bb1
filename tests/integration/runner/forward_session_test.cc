#include "runner/forward_session.h"

#include <doctest/doctest.h>

#include <boost/asio.hpp>
#include <chrono>
#include <optional>

#include "schema/exec_limits.h"
#include "tests/integration/runner/recording_peer.h"
#include "tests/support/skipped.h"

namespace dtrain::runner {
namespace {

using Tcp = boost::asio::ip::tcp;

// A server on a port of its own, of which each case takes one connection.
struct ForwardScene : RecordedSession {
  explicit ForwardScene(const std::string& address = "127.0.0.1")
      : listener(loop, Tcp::endpoint(boost::asio::ip::make_address(address), 0)), port(listener.local_endpoint().port()) {}

  void begin(const std::string& own_address = "", bool hears_end = true) {
    session = std::make_shared<ForwardSession>(loop, peer, [this] { over = true; });
    session->start(port, own_address, hears_end);
  }
  void accept() {
    listener.async_accept([this](boost::system::error_code error, Tcp::socket socket) {
      REQUIRE(!error);
      server.emplace(std::move(socket));
    });
    until([this] { return server.has_value(); });
  }
  // What the server hears until the end of what is sent to it.
  std::string heard() {
    std::string all;
    CHECK(end_of_input(&all) == boost::asio::error::eof);
    return all;
  }
  boost::system::error_code end_of_input(std::string* into = nullptr) {
    std::string all;
    boost::system::error_code how;
    boost::asio::async_read(*server, boost::asio::dynamic_buffer(into != nullptr ? *into : all),
                            [&](boost::system::error_code error, size_t) { how = error; });
    until([&] { return how.failed(); });
    return how;
  }

  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{loop.get_executor()};
  Tcp::acceptor listener;
  uint16_t port;
  std::optional<Tcp::socket> server;
  std::shared_ptr<ForwardSession> session;
};

TEST_CASE("the end of what is sent reaches the server, which may say more") {
  ForwardScene scene;
  scene.begin();
  scene.type("before it is connected");
  scene.end_input();
  scene.accept();
  CHECK(scene.heard() == "before it is connected");
  CHECK(scene.peer->taken == 22);
  CHECK_FALSE(scene.over);
  boost::asio::write(*scene.server, boost::asio::buffer(std::string("the last word")));
  scene.server.reset();
  scene.until([&] { return scene.over; });
  CHECK(scene.peer->output == "the last word");
  REQUIRE(scene.peer->ended);
  CHECK(scene.peer->ended->code() == 0);
  CHECK(scene.peer->done);
}

TEST_CASE("a server that says nothing more still hears, where its peer can be told") {
  ForwardScene scene;
  scene.begin();
  scene.accept();
  boost::asio::write(*scene.server, boost::asio::buffer(std::string("all of mine")));
  scene.server->shutdown(Tcp::socket::shutdown_send);
  scene.until([&] { return scene.peer->output_ends == 1; });
  CHECK(scene.peer->output == "all of mine");
  scene.take(scene.peer->output.size());
  CHECK_FALSE(scene.over);
  scene.type("and mine");
  scene.end_input();
  CHECK(scene.heard() == "and mine");
  scene.until([&] { return scene.over; });
  REQUIRE(scene.peer->ended);
  CHECK(scene.peer->ended->code() == 0);
  CHECK(scene.peer->output_ends == 1);

  ForwardScene cut;
  cut.begin();
  cut.accept();
  cut.server->shutdown(Tcp::socket::shutdown_send);
  cut.until([&] { return cut.peer->output_ends == 1; });
  cut.type("a part");
  cut.until([&] { return cut.peer->taken == 6; });
  cut.peer->on_closed();
  CHECK(cut.end_of_input() == boost::asio::error::connection_reset);

  ForwardScene old;
  old.begin("", false);
  old.accept();
  old.server->shutdown(Tcp::socket::shutdown_send);
  old.until([&] { return old.over; });
  CHECK(old.peer->output_ends == 0);
}

TEST_CASE("a server that has gone ends what is still sent to it") {
  ForwardScene scene;
  scene.begin();
  scene.accept();
  scene.server.reset();
  scene.until([&] { return scene.peer->output_ends == 1; });
  for (int tries = 0; tries < 100'000 && !scene.over; ++tries) {
    scene.type("x");
    (void)scene.loop.poll();
  }
  REQUIRE(scene.peer->ended);
  CHECK(scene.peer->ended->code() == 0);
}

TEST_CASE("what a server says waits with it until what was sent is taken, and its end comes after all of it") {
  ForwardScene scene;
  scene.begin();
  scene.accept();
  const std::string all(3 * kExecWindowBytes, 'x');
  boost::asio::async_write(*scene.server, boost::asio::buffer(all), [&](boost::system::error_code error, size_t) {
    CHECK(!error);
    scene.server.reset();
  });
  scene.until([&] { return scene.peer->output.size() >= kExecWindowBytes; });
  CHECK(scene.peer->output.size() < kExecWindowBytes + kExecPartBytes);
  const size_t there = scene.peer->output.size();
  (void)scene.loop.poll();
  CHECK(scene.peer->output.size() == there);
  CHECK_FALSE(scene.over);
  uint64_t taken = 0;
  while (scene.peer->output_ends == 0) {
    if (scene.peer->output.size() > taken) {
      const uint64_t more = scene.peer->output.size() - taken;
      taken += more;
      scene.take(more);
    } else {
      REQUIRE(scene.loop.run_one_for(std::chrono::seconds(30)) == 1);
    }
  }
  CHECK(scene.peer->output == all);
  scene.end_input();
  CHECK(scene.over);
}

TEST_CASE("a server that does not read has its input wait, and whoever keeps no measure is left") {
  ForwardScene scene;
  scene.begin();
  scene.accept();
  uint64_t sent = 0;
  // As much as the sockets take, and then a window that nobody answers for.
  while (sent - scene.peer->taken < kExecWindowBytes) {
    scene.type(std::string(kExecPartBytes, 'x'));
    sent += kExecPartBytes;
    (void)scene.loop.poll();
    REQUIRE(sent < (uint64_t{1} << 30));
  }
  CHECK_FALSE(scene.over);
  for (int i = 0; i < 64 && !scene.over; ++i) scene.type(std::string(kExecPartBytes, 'x'));
  CHECK(scene.over);
}

TEST_CASE("a reset is passed on as one, and a peer that goes before its end resets the connection") {
  ForwardScene scene;
  scene.begin();
  scene.accept();
  scene.server->set_option(boost::asio::socket_base::linger(true, 0));
  scene.server->close();   // a destructor would close it without a reset
  scene.until([&] { return scene.over; });
  REQUIRE(scene.peer->ended);
  CHECK(scene.peer->ended->code() == ECONNRESET);

  ForwardScene other;
  other.begin();
  other.accept();
  other.type("a part");
  other.until([&] { return other.peer->taken == 6; });
  other.peer->on_closed();
  CHECK(other.over);
  CHECK(other.end_of_input() == boost::asio::error::connection_reset);
  CHECK_FALSE(other.peer->ended);

  ForwardScene whole;
  whole.begin();
  whole.accept();
  whole.type("all of it");
  whole.end_input();
  whole.until([&] { return whole.peer->taken == 9; });
  whole.peer->on_closed();
  CHECK(whole.end_of_input() == boost::asio::error::eof);
}

TEST_CASE("who listens at ::1 or at the host's own address alone is found, and of none it is said that nobody does") {
  boost::system::error_code no_v6;
  {
    boost::asio::io_context loop;
    Tcp::acceptor tried(loop);
    tried.open(Tcp::v6(), no_v6);
    if (!no_v6) tried.bind({boost::asio::ip::address_v6::loopback(), 0}, no_v6);
  }
  if (!no_v6) {
    ForwardScene scene("::1");
    scene.begin();
    scene.accept();
    CHECK(scene.peer->started);
  } else {
    tests::say_left_out("at ::1: this machine has no IPv6");
  }
  ForwardScene scene("127.0.0.2");
  scene.begin("127.0.0.2");
  scene.accept();
  scene.peer->on_closed();

  ForwardScene none;
  none.listener.close();
  none.begin("127.0.0.2");
  none.until([&] { return none.over; });
  REQUIRE(none.peer->ended);
  CHECK(none.peer->ended->code() == ECONNREFUSED);
  CHECK(none.peer->ended->cause() == "Connection refused");
}

}  // namespace
}  // namespace dtrain::runner
