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

TEST_CASE("output of what can't be read is kept") {
  test::TemporaryFolder folder;
  const Home home = home_below(folder.path());
  leave_unreadable(home, {"a"});
  ServedDaemon daemon(home);
  FakeRunner runner(daemon);
  runner.say(output("1.train", "hello\n"));
  daemon.until([&] { return runner.count(pb::ToRunner::kLogAck) == 1; });
  CHECK(daemon.logs.durable_offset(1, {"1.train", 1}) == 6);
}

TEST_CASE("output is heard where silence matters, but a TensorBoard's") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  FakeRunner runner(daemon);
  Submission submission = a_submission("a");
  submission.spec_yaml =
      "project: testing\ntrain:\n  framework: tensorflow\n  resources: {cpus: 0.5, mem: 64}\n  tensorflow: {tensorboard: true}\n"
      "  failure-policy: [{silent-for: 1h, action: fail}]\n  run: 'true'\n";
  submission.spec = parse_spec(submission.spec_yaml, {}).value();
  REQUIRE(daemon.scheduler.submit(std::move(submission), {}).ok());
  daemon.until([&] { return runner.last(pb::ToRunner::kLaunch) != nullptr; });
  const auto heard_ms = [&] { return daemon.scheduler.model().experiments.at({1, 0}).heard_ms; };
  runner.say(output("1.tensorboard", "TensorBoard at ...\n"));
  daemon.until([&] { return runner.count(pb::ToRunner::kLogAck) == 1; });
  CHECK(heard_ms() == 0);
  runner.say(output("1.train", "hello\n"));
  daemon.until([&] { return runner.count(pb::ToRunner::kLogAck) == 2; });
  CHECK(heard_ms() > 0);
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

TEST_CASE("a host that was lost may bring the output of an attempt that another has gone on from") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  FakeRunner runner(daemon);
  REQUIRE(daemon.scheduler.submit(a_submission("a"), {}).ok());
  daemon.until([&] { return runner.last(pb::ToRunner::kLaunch) != nullptr; });
  pb::FromRunner failed;
  failed.mutable_prepare_failed()->set_experiment("1");
  failed.mutable_prepare_failed()->set_attempt(1);
  failed.mutable_prepare_failed()->set_ours(true);
  runner.say(failed);
  pb::FromRunner released;
  released.mutable_released()->set_replica("1.train");
  released.mutable_released()->set_attempt(1);
  runner.say(released);
  daemon.until([&] { return runner.last(pb::ToRunner::kLaunch)->launch().attempt() == 2; });
  FakeRunner back(daemon, 0, nullptr, "h2");
  back.say(output("1.train", "meanwhile\n"));
  daemon.until([&] { return back.last(pb::ToRunner::kLogAck) != nullptr; });
  CHECK(daemon.logs.durable_offset(1, {"1.train", 1}) == 10);
}

TEST_CASE("a journal that takes nothing holds up no other output of its host") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  const std::filesystem::path journal = daemon.logs.path(1);
  std::filesystem::create_directory(journal);
  {
    FakeRunner runner(daemon);
    for (const char* id : {"a", "b"}) REQUIRE(daemon.scheduler.submit(a_submission(id), {}).ok());
    runner.say(output("1.train", "hello\n"));
    runner.say(output("1.train", "and more\n"));
    runner.say(output("2.train", "hello\n"));
    daemon.until([&] { return runner.ended() || runner.last(pb::ToRunner::kLogAck) != nullptr; });
    REQUIRE(!runner.ended());
    CHECK(runner.last(pb::ToRunner::kLogAck)->log_ack().replica() == "2.train");
    daemon.until([&] { return runner.ended(); });
  }
  std::filesystem::remove(journal);
  FakeRunner runner(daemon);
  runner.say(output("1.train", "hello\n"));
  daemon.until([&] { return runner.last(pb::ToRunner::kLogAck) != nullptr; });
  CHECK(runner.last(pb::ToRunner::kLogAck)->log_ack().replica() == "1.train");
}

TEST_CASE("a runner that says nothing any more is given up") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()), std::chrono::milliseconds(600));
  std::vector<HostId> hung;
  daemon.runner_api.on_hung = [&](const HostId& host) { hung.push_back(host); };
  FakeRunner runner(daemon);
  REQUIRE(runner.last(pb::ToRunner::kWelcome) != nullptr);
  CHECK(runner.last(pb::ToRunner::kWelcome)->welcome().renew_every_ms() == 100);
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

TEST_CASE("runners are asked what they could do without, and none is waited for in vain") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  std::optional<Result<RunnerApi::Unused>> unused;
  const auto ask = [&](std::chrono::milliseconds patience) {
    unused.reset();
    daemon.runner_api.count_unused(patience, [&](auto result) { unused = std::move(result); });
  };
  ask(std::chrono::minutes(1));
  REQUIRE(unused.has_value());
  CHECK(unused->value().count == 0);
  {
    FakeRunner runner(daemon);
    ask(std::chrono::minutes(1));
    daemon.until([&] { return runner.last(pb::ToRunner::kCountEnvironments) != nullptr; });
    pb::FromRunner answer;
    pb::UnusedEnvironments& said = *answer.mutable_unused_environments();
    said.set_question(runner.last(pb::ToRunner::kCountEnvironments)->count_environments().question());
    said.set_count(3);
    said.set_bytes(5'000);
    said.set_tree_bytes(7'000);
    runner.say(answer);
    daemon.until([&] { return unused.has_value(); });
    CHECK(unused->value().hosts == 1);
    CHECK(unused->value().count == 3);
    CHECK(unused->value().bytes == 5'000);
    CHECK(unused->value().tree_hosts == 1);
    CHECK(unused->value().tree_bytes == 7'000);
    ask(std::chrono::milliseconds(1));
    daemon.until([&] { return unused.has_value(); });
    REQUIRE(!unused->ok());
    CHECK(unused->error().code == Code::Unavailable);
    CHECK(unused->error().message == "h1 has not said what it could do without");
    runner.say(answer);   // of a question that is closed
    ask(std::chrono::minutes(1));
  }
  daemon.until([&] { return unused.has_value(); });
  CHECK(unused->value().count == 0);
}

}  // namespace
}  // namespace dtrain::daemon
