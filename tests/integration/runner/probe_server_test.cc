#include "runner/probe_server.h"

#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cmath>

namespace dtrain::runner {

namespace {

using namespace std::chrono_literals;

ProbeTime in(std::chrono::milliseconds time) { return std::chrono::steady_clock::now() + time; }

// Host 1 of an experiment, and who dials it.
struct ProbedHost {
  ProbeServer server{"ex", 1, [](int fd) {
                       while (const auto order = read_probe_line(fd, in(5s))) write_probe_line(fd, "did " + *order, in(5s));
                     }};
  int port = 0;
  ProbedHost() {
    const auto listening = server.listen(0);
    if (!listening.ok()) FAIL(listening.error().message);
    port = *listening;
  }
  ProbePeer peer(const std::string& address = "127.0.0.1") const { return {1, address, port}; }
  ProbeDialled dial(ProbePurpose purpose) const { return dial_probe(peer(), {"ex", 0, 1, purpose}, in(5s), false); }
};

}  // namespace

TEST_CASE("a probe is greeted by who is meant, and by nobody else") {
  ProbedHost host;
  CHECK(!host.server.was_reached());
  CHECK(dial_probe(host.peer(), {"other", 0, 1, ProbePurpose::Hello}, in(5s), false).reach == Reach::Stranger);
  CHECK(dial_probe(host.peer(), {"ex", 0, 2, ProbePurpose::Hello}, in(5s), false).reach == Reach::Stranger);
  CHECK(!host.server.was_reached());
  CHECK(host.dial(ProbePurpose::Hello).reach == Reach::Reached);
  CHECK(host.dial(ProbePurpose::Ping).reach == Reach::Reached);
  CHECK(host.server.was_reached());
}

TEST_CASE("who is not reached is told apart by how") {
  int closed = 0;
  {
    ProbedHost host;
    closed = host.port;
  }
  const ProbeGreeting greeting{"ex", 0, 1, ProbePurpose::Hello};
  CHECK(dial_probe({1, "127.0.0.1", closed}, greeting, in(5s), false).reach == Reach::Refused);
  CHECK(dial_probe({1, "no such name", closed}, greeting, in(5s), false).reach == Reach::NoName);
  // One that listens, and never answers.
  const Fd silent(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  REQUIRE(::listen(silent.get(), 1) == 0);
  sockaddr_in own{};
  socklen_t size = sizeof own;
  REQUIRE(::getsockname(silent.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0);
  CHECK(dial_probe({1, "127.0.0.1", ntohs(own.sin_port)}, greeting, in(100ms), false).reach == Reach::TimedOut);
}

TEST_CASE("round trips and both ways are measured") {
  ProbedHost host;
  const ProbeDialled pings = host.dial(ProbePurpose::Ping);
  const auto pinged = ping(pings.fd.get(), in(5s));
  REQUIRE(pinged.has_value());
  CHECK(pinged->round_trip_ms > 0);
  CHECK(std::abs(pinged->clock_ahead_ms) < 1000);   // it is the same one
  const ProbeDialled up = host.dial(ProbePurpose::Upload), down = host.dial(ProbePurpose::Download);
  CHECK(send_for_a_while(up.fd.get(), in(5s)) > 1e6);
  CHECK(receive_for_a_while(down.fd.get(), false, in(5s)) > 1e6);
}

TEST_CASE("orders go to who waits for them, by whichever end dialled") {
  ProbedHost host;
  const ProbeDialled given = host.dial(ProbePurpose::Orders);
  CHECK(write_probe_line(given.fd.get(), "this", in(5s)));
  CHECK(read_probe_line(given.fd.get(), in(5s)) == "did this");
  const ProbeDialled waits = host.dial(ProbePurpose::Work);
  const Fd worker = host.server.take_worker(0, in(5s));
  REQUIRE(worker);
  CHECK(write_probe_line(worker.get(), "that", in(5s)));
  CHECK(read_probe_line(waits.fd.get(), in(5s)) == "that");
  CHECK(!host.server.take_worker(2, in(1ms)));
}

TEST_CASE("that all is measured is told to who waits for it, and else it waits no longer than it may") {
  ProbedHost host;
  CHECK(!host.server.wait_for_finish(in(1ms)));
  CHECK(host.dial(ProbePurpose::Finish).reach == Reach::Reached);
  CHECK(host.server.wait_for_finish(in(5s)));
}

}  // namespace dtrain::runner
