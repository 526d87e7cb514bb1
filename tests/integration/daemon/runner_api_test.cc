#include "daemon/runner_api.h"

#include "tests/integration/daemon/served_daemon.h"

namespace dtrain::daemon {
namespace {

pb::FromRunner output(const std::string& replica, const std::string& text) {
  pb::FromRunner message;
  message.mutable_log()->set_replica(replica);
  message.mutable_log()->set_attempt(1);
  message.mutable_log()->set_data(text);
  return message;
}

// The runner lets go of a replica only once all its output is acknowledged.
TEST_CASE("output that nobody wants any more is acknowledged all the same") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  FakeRunner runner(daemon);
  runner.say(output("7.train", "hello\n"));
  daemon.until([&] { return runner.last(pb::ToRunner::kLogAck) != nullptr; });
  const pb::LogAck& ack = runner.last(pb::ToRunner::kLogAck)->log_ack();
  CHECK(ack.replica() == "7.train");
  CHECK(ack.attempt() == 1);
  CHECK(ack.offset() == 6);
}

TEST_CASE("output that comes again after it became durable is acknowledged again") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  FakeRunner runner(daemon);
  REQUIRE(daemon.scheduler.submit(a_submission("a"), {}).ok());
  daemon.until([&] { return runner.last(pb::ToRunner::kLaunch) != nullptr; });
  runner.say(output("1.train", "hello\n"));
  daemon.until([&] { return runner.count(pb::ToRunner::kLogAck) == 1; });
  CHECK(runner.last(pb::ToRunner::kLogAck)->log_ack().offset() == 6);
  runner.say(output("1.train", "hello\n"));
  daemon.until([&] { return runner.count(pb::ToRunner::kLogAck) == 2; });
  CHECK(runner.last(pb::ToRunner::kLogAck)->log_ack().offset() == 6);
}

TEST_CASE("a runner that says nothing any more is given up") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()), std::chrono::milliseconds(60));
  std::vector<HostId> hung;
  daemon.runner_api.on_hung = [&](const HostId& host) { hung.push_back(host); };
  FakeRunner runner(daemon);
  CHECK(runner.last(pb::ToRunner::kWelcome)->welcome().renew_every_ms() == 10);
  const Host& host = daemon.scheduler.model().hosts.at(HostId{"h1"});
  CHECK(host.connected);
  daemon.until([&] { return runner.ended(); });
  CHECK(hung == std::vector{HostId{"h1"}});
  daemon.until([&] { return !host.connected; });
}

TEST_CASE("a stream that ends is told of, unless a newer one of its host took its place") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  std::vector<HostId> gone;
  daemon.runner_api.on_disconnected = [&](const HostId& host) { gone.push_back(host); };
  {
    FakeRunner newer(daemon, 2'000);
    { FakeRunner newest(daemon, 3'000); }
    daemon.until([&] { return newer.ended(); });
  }
  daemon.until([&] { return !gone.empty(); });
  CHECK(gone == std::vector{HostId{"h1"}});
}

TEST_CASE("a hello that comes after a newer one of its host is refused") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  const auto connected = [&] { return daemon.scheduler.model().hosts.at(HostId{"h1"}).connected; };
  {
    FakeRunner newer(daemon, 2'000);
    FakeRunner older(daemon, 1'000);
    CHECK(older.ended());
    CHECK(older.count(pb::ToRunner::kWelcome) == 0);
    CHECK_FALSE(newer.ended());
    CHECK(connected());
  }
  daemon.until([&] { return !connected(); });
  {
    FakeRunner older(daemon, 1'999);
    CHECK(older.ended());
    CHECK_FALSE(connected());
  }
  FakeRunner next(daemon, 2'001);
  CHECK_FALSE(next.ended());
  CHECK(connected());
}

}  // namespace
}  // namespace dtrain::daemon
