#include "engine/comm/socket.h"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <thread>
#include <vector>

namespace dtrain::engine {
namespace {

struct Pair {
  Socket a, b;
};

Pair connected() {
  auto listener = Listener::open("127.0.0.1", 0);
  REQUIRE(listener.ok());
  auto a = Socket::connect(fmt::format("127.0.0.1:{}", listener->port()), Deadline::after(5));
  REQUIRE(a.ok());
  auto b = listener->accept(Deadline::after(5));
  REQUIRE(b.ok());
  return {std::move(*a), std::move(*b)};
}

TEST_CASE("host:port is taken apart") {
  CHECK(parse_host_port("10.0.0.3:4000")->host == "10.0.0.3");
  CHECK(parse_host_port("10.0.0.3:4000")->port == 4000);
  CHECK(parse_host_port("[::1]:80")->host == "::1");
  for (const char* wrong : {"", "host", "host:", "host:x", "host:65536", "host:-1", "host:1 "}) {
    CAPTURE(wrong);
    REQUIRE(!parse_host_port(wrong).ok());
    CHECK(parse_host_port(wrong).error().code == Code::InvalidArgument);
  }
}

TEST_CASE("who is known by an address listens at every interface, but for loopback") {
  CHECK(listening_address("10.0.0.3:4000") == "0.0.0.0:4000");
  CHECK(listening_address("node-1:4000") == "0.0.0.0:4000");
  CHECK(listening_address("[2001:db8::1]:4000") == "[::]:4000");
  for (const char* same : {"127.0.0.1:4000", "127.0.1.1:4000", "localhost:1", "[::1]:80", "host"}) {
    CHECK(listening_address(same) == same);
  }
}

TEST_CASE("more than a socket holds goes through whole, from several parts") {
  auto [a, b] = connected();
  std::vector<char> sent(8 << 20), received(sent.size());
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 7 + i / 1000);
  // Of uneven sizes, some empty, and more than one call takes.
  std::vector<iovec> parts;
  for (size_t at = 0; at < sent.size();) {
    const size_t size = std::min(sent.size() - at, parts.size() * 997);
    parts.push_back({sent.data() + at, size});
    at += size;
  }
  REQUIRE(parts.size() > Socket::kMostParts);
  std::thread reader(
      [&, &to = b] { CHECK(to.read(received.data(), received.size(), Deadline::after(20)).ok()); });
  CHECK(a.write(parts, Deadline::after(20)).ok());
  reader.join();
  CHECK(sent == received);
}

TEST_CASE("a silent peer is a deadline, and named") {
  auto [a, b] = connected();
  a.set_name("worker 2 at 10.0.0.3:4000");
  char byte = 0;
  const auto status = a.read(&byte, 1, Deadline::after(0.01));
  REQUIRE(!status.ok());
  CHECK(status.error().code == Code::DeadlineExceeded);
  CHECK(status.error().message == "worker 2 at 10.0.0.3:4000 did not answer for 0.01 s");
  std::vector<char> much(64 << 20);
  CHECK(a.write(much.data(), much.size(), Deadline::after(0.01)).error().code ==
        Code::DeadlineExceeded);
}

TEST_CASE("a peer that is gone is not a deadline, and kills nobody") {
  auto [a, b] = connected();
  a.set_name("ps 1");
  CHECK(!a.has_hung_up());
  b.close();
  char byte = 0;
  const auto status = a.read(&byte, 1, Deadline::after(5));
  REQUIRE(!status.ok());
  CHECK(status.error().code == Code::Unavailable);
  CHECK(status.error().message == "ps 1 closed the connection");
  CHECK(a.has_hung_up());
  std::vector<char> much(1 << 20);
  Status written = ok();
  while (written.ok()) written = a.write(much.data(), much.size(), Deadline::after(5));
  CHECK(written.error().code == Code::Unavailable);
  CHECK(written.error().message.find("ps 1") != std::string::npos);
}

TEST_CASE("a connection is tried until someone listens") {
  auto probe = Listener::open("127.0.0.1", 0);
  REQUIRE(probe.ok());
  const int port = probe->port();
  probe->close();
  const std::string address = fmt::format("127.0.0.1:{}", port);
  const auto refused = Socket::connect(address, Deadline::after(0.05));
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == Code::DeadlineExceeded);
  CHECK(refused.error().message.find(address) != std::string::npos);

  Result<Socket> late = Error{};
  std::thread connecting([&] { late = Socket::connect(address, Deadline::after(20)); });
  auto listener = Listener::open("127.0.0.1", port);
  REQUIRE(listener.ok());
  CHECK(listener->accept(Deadline::after(20)).ok());
  connecting.join();
  CHECK(late.ok());
}

TEST_CASE("an abstract Unix address serves like a port") {
  const std::string address = fmt::format("unix:@dtrain-socket-test-{}", ::getpid());
  auto listener = Listener::open_unix(address);
  REQUIRE(listener.ok());
  auto a = Socket::connect(address, Deadline::after(5));
  REQUIRE(a.ok());
  auto b = listener->accept(Deadline::after(5));
  REQUIRE(b.ok());
  CHECK(a->write("hi", 2, Deadline::after(5)).ok());
  std::array<char, 2> got{};
  CHECK(b->read(got.data(), 2, Deadline::after(5)).ok());
  CHECK(got == std::array<char, 2>{'h', 'i'});
  CHECK(!Listener::open_unix(address).ok());
  CHECK(listener->accept(Deadline::after(0)).error().code == Code::DeadlineExceeded);
}

}  // namespace
}  // namespace dtrain::engine
