// Metrics against a real store and real journals, with daemons that die at any moment.
#include "daemon/metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <random>

#include "tests/integration/daemon/one_daemon.h"

namespace dtrain::daemon {
namespace {

Submission measured(const std::string& more = "") {
  Submission submission = a_submission("measured");
  submission.spec_yaml =
      "project: testing\ntrain:\n  resources: {cpus: 2, mem: 64}\n  metrics: [loss]\n" + more +
      "  run: 'true'\n";
  submission.spec = parse_spec(submission.spec_yaml, {}).value();
  return submission;
}

void begin(OneDaemon& daemon, const ExperimentId& id) {
  daemon.scheduler.handle(LaunchPrepared{kHost, {id, 1}});
  daemon.turn();
  daemon.scheduler.handle(ReplicaStarted{{id, Role::Train, 0}, 1, 4242, 1'000, kHost});
  daemon.turn();
}

void end(OneDaemon& daemon, const ExperimentId& id) {
  daemon.scheduler.handle(ReplicaExited{{id, Role::Train, 0}, 1, Exit{}, kHost});
  daemon.scheduler.handle(ReplicaReleased{{id, Role::Train, 0}, 1, "", kHost});
  daemon.turn();
}

// As RunnerApi takes it.
void print(OneDaemon& daemon, const ExperimentId& id, uint64_t offset, const std::string& text) {
  pb::LogData data;
  data.set_replica(to_string(ReplicaId{id, Role::Train, 0}));
  data.set_attempt(1);
  data.set_offset(offset);
  data.set_data(text);
  const Experiment& experiment = daemon.scheduler.model().experiments.at(id);
  REQUIRE(daemon.logs.append(id.number, data).ok());
  if (!experiment.over) daemon.metrics.take(experiment, {id, Role::Train, 0}, data);
}

// "4.2: loss 0.5 0.25 2 3", a line each.
std::string shown(OneDaemon& daemon, uint32_t number) {
  const auto known = daemon.scheduler.find({number, 0});
  REQUIRE(known.ok());
  const auto& live = daemon.scheduler.model().experiments;
  const auto first = live.lower_bound({number, 0});
  const bool is_live = first != live.end() && first->first.number == number;
  const auto values = daemon.metrics.values(*known->submission, is_live);
  REQUIRE(values.ok());
  std::string text;
  for (const auto& [member, metrics] : *values) {
    for (const pb::Metric& metric : metrics) {
      text += fmt::format("{}: {} {} {} {} {}\n", member, metric.name(), metric.last(),
                          metric.minimum(), metric.maximum(), metric.count());
    }
  }
  return text;
}

std::string line(int i) {
  return fmt::format("step {} loss={}\n", i, (i * 37) % 101);
}

TEST_CASE("values are there while it runs, once it is over, and until it is forgotten") {
  test::TemporaryFolder folder;
  OneDaemon daemon(home_below(folder.path()));
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  REQUIRE(daemon.scheduler.submit(measured(), {}).ok());
  daemon.turn();
  begin(daemon, {1, 0});
  CHECK(shown(daemon, 1) == "");
  print(daemon, {1, 0}, 0, "loss=2\nloss=1\nloss=0.5");
  CHECK(shown(daemon, 1) == "0: loss 1 1 2 2\n");
  end(daemon, {1, 0});
  daemon.until([&] { return !daemon.is_open_in_store(1); });
  CHECK(shown(daemon, 1) == "0: loss 0.5 0.5 2 3\n");  // the last line never ended
  const auto stored = daemon.store->metrics(1);
  REQUIRE(stored.ok());
  CHECK(stored->members.at(0).over());
  CHECK(stored->members.at(0).tails().empty());
  REQUIRE(daemon.store->remove_submissions({1}).ok());
  CHECK(daemon.store->metrics(1)->members.empty());
  CHECK(daemon.store->metrics(1)->journal_bytes == 0);
}

TEST_CASE("members of a set that are over keep what they said, whatever becomes of the daemon") {
  test::TemporaryFolder folder;
  const Home home = home_below(folder.path());
  {
    OneDaemon daemon(home);
    daemon.scheduler.handle(HostConnected{a_host(), {}});
    REQUIRE(daemon.scheduler.submit(measured("  parameters: {n: [1, 2, 3]}\n"), {}).ok());
    daemon.turn();
    begin(daemon, {1, 1});
    begin(daemon, {1, 2});
    print(daemon, {1, 1}, 0, "loss=1\n");
    print(daemon, {1, 2}, 0, "loss=2\nlos");
    end(daemon, {1, 1});
    REQUIRE(daemon.scheduler.is_over({1, 1}));
    CHECK(shown(daemon, 1) == "1: loss 1 1 1 1\n2: loss 2 2 2 1\n");
  }
  // The store knows the end of the first, and the journal all of both.
  OneDaemon next(home);
  CHECK(shown(next, 1) == "1: loss 1 1 1 1\n2: loss 2 2 2 1\n");
  print(next, {1, 1}, 0, "loss=1\n");  // once more, of one that is over
  print(next, {1, 2}, 3, "s=2\nlos");
  CHECK(shown(next, 1) == "1: loss 1 1 1 1\n2: loss 2 2 2 1\n");
  print(next, {1, 2}, 3, "s=2\nloss=4\n");
  CHECK(shown(next, 1) == "1: loss 1 1 1 1\n2: loss 4 2 4 2\n");
}

TEST_CASE("the end of an experiment is not told without its values") {
  test::TemporaryFolder folder;
  const Home home = home_below(folder.path());
  OneDaemon daemon(home);
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  REQUIRE(daemon.scheduler.submit(measured(), {}).ok());
  daemon.turn();
  begin(daemon, {1, 0});
  print(daemon, {1, 0}, 0, "loss=2\nloss=1");
  {
    FullDisk full;
    daemon.scheduler.handle(ReplicaExited{{{1, 0}, Role::Train, 0}, 1, Exit{}, kHost});
    daemon.scheduler.handle(ReplicaReleased{{{1, 0}, Role::Train, 0}, 1, "", kHost});
    daemon.turn();
    CHECK(!daemon.scheduler.is_over({1, 0}));
    CHECK(shown(daemon, 1) == "0: loss 2 2 2 1\n");
  }
  daemon.scheduler.at_end_of_turn([](const Status&) {});
  daemon.turn();
  CHECK(daemon.scheduler.is_over({1, 0}));
  CHECK(shown(daemon, 1) == "0: loss 1 1 2 2\n");
}

// Whatever was not synced when the power went.
void lose_power(OneDaemon& daemon) {
  const auto durable = daemon.logs.durable_end(1);
  const auto path = daemon.logs.path(1);
  if (durable && std::filesystem::exists(path)) std::filesystem::resize_file(path, *durable);
}

TEST_CASE("what could not be read at the end of an experiment is read when somebody asks") {
  test::TemporaryFolder folder;
  const Home home = home_below(folder.path());
  const std::string printed = "loss=2\nloss=1\nloss=0.5";
  {
    OneDaemon daemon(home);
    daemon.scheduler.handle(HostConnected{a_host(), {}});
    REQUIRE(daemon.scheduler.submit(measured(), {}).ok());
    daemon.turn();
    begin(daemon, {1, 0});
    print(daemon, {1, 0}, 0, printed);
  }
  {
    OneDaemon daemon(home);
    pb::LogData again;   // so that the journal is open, and nobody has read metrics yet
    again.set_replica("1.train");
    again.set_attempt(1);
    again.set_data(printed);
    REQUIRE(daemon.logs.append(1, again).ok());
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const int lowest_free = dup(0);
    REQUIRE(lowest_free >= 0);
    close(lowest_free);
    const rlimit none{static_cast<rlim_t>(lowest_free), before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    end(daemon, {1, 0});
    const bool over = daemon.scheduler.is_over({1, 0});
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(over);
    daemon.until([&] { return !daemon.is_open_in_store(1); });
    CHECK(shown(daemon, 1) == "0: loss 0.5 0.5 2 3\n");
    CHECK(shown(daemon, 1) == "0: loss 0.5 0.5 2 3\n");
  }
  OneDaemon next(home);
  CHECK(shown(next, 1) == "0: loss 0.5 0.5 2 3\n");
}

TEST_CASE("who said nothing is known to have said nothing") {
  test::TemporaryFolder folder;
  const Home home = home_below(folder.path());
  OneDaemon daemon(home);
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  REQUIRE(daemon.scheduler.submit(measured(), {}).ok());
  daemon.turn();
  begin(daemon, {1, 0});
  end(daemon, {1, 0});
  daemon.until([&] { return !daemon.is_open_in_store(1); });
  CHECK(daemon.store->metrics(1)->members.at(0).over());
  CHECK(shown(daemon, 1) == "");
}

TEST_CASE("no value is lost or counted twice, whenever the daemon or the machine dies") {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto number = [&](size_t low, size_t high) {
      return std::uniform_int_distribution<size_t>(low, high)(random);
    };
    test::TemporaryFolder folder;
    const Home home = home_below(folder.path());
    std::string whole;
    for (int i = 0; i < 150; ++i) whole += line(i);
    auto daemon = std::make_unique<OneDaemon>(home, LogsDisk{}, 300);
    daemon->scheduler.handle(HostConnected{a_host(), {}});
    REQUIRE(daemon->scheduler.submit(measured(), {}).ok());
    daemon->turn();
    begin(*daemon, {1, 0});
    for (uint64_t at = 0; at < whole.size();) {
      const std::string piece = whole.substr(at, number(1, 60));
      print(*daemon, {1, 0}, at, piece);
      at += piece.size();
      if (number(0, 3) == 0) daemon->turn();  // written, and being synced
      const size_t fate = number(0, 25);
      if (fate > 1) continue;
      if (fate == 0) lose_power(*daemon);
      daemon.reset();
      daemon = std::make_unique<OneDaemon>(home, LogsDisk{}, 300);
      HostConnected back{a_host(), {{{{1, 0}, Role::Train, 0}, 1}}};
      daemon->scheduler.handle(std::move(back));
      daemon->turn();
      // The runner goes on from what it was told is durable.
      at = daemon->logs.durable_offset(1, {"1.train", 1});
    }
    REQUIRE(shown(*daemon, 1) == "0: loss 59 0 100 150\n");
    end(*daemon, {1, 0});
    daemon->until([&] { return !daemon->is_open_in_store(1); });
    REQUIRE(shown(*daemon, 1) == "0: loss 59 0 100 150\n");
  }
}

}  // namespace
}  // namespace dtrain::daemon
