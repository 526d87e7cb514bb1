// dtrain monitor on a terminal of its own, against a daemon that sends one sample a stream.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>

#include <latch>

#include "cli/connection.h"
#include "fake_daemon.h"
#include "tests/support/screenful.h"

namespace dtrain::cli {
namespace {

constexpr const char* kEnterScreen = "\x1b[?1049h";
constexpr const char* kLeaveScreen = "\x1b[?1049l";

class SamplingDaemon final : public FakeDaemon {
 public:
  using FakeDaemon::FakeDaemon;
  ~SamplingDaemon() override { over_.count_down(); }

  grpc::Status Monitor(grpc::ServerContext*, const pb::MonitorRequest* request,
                       grpc::ServerWriter<pb::MonitorSample>* stream) override {
    asked_monitor = *request;
    pb::MonitorSample sample;
    sample.set_state("RUNNING");
    for (const std::string& each : replicas) {
      pb::ReplicaUsage* usage = sample.add_replicas();
      usage->set_replica(each);
      usage->set_live(true);
    }
    stream->Write(sample);
    over_.wait();
    return grpc::Status::OK;
  }

  std::vector<std::string> replicas = {"4.train"};
  pb::MonitorRequest asked_monitor;

 private:
  std::latch over_{1};
};

bool holds(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("a monitor that is stopped or quit gives the terminal back as it was") {
  const ScratchHome scratch;
  SamplingDaemon daemon(scratch.home());
  tests::Screenful monitor({{BIN_DIR "/dtrain", "monitor", "4"}, {}, {}, {}});
  REQUIRE(holds(monitor.read_until("4.train"), kEnterScreen));

  monitor.signal(SIGTSTP);
  REQUIRE(holds(monitor.read_until(kLeaveScreen), kLeaveScreen));
  REQUIRE(WIFSTOPPED(monitor.changed()));
  monitor.signal(SIGCONT);
  CHECK(holds(monitor.read_until("4.train"), kEnterScreen));

  monitor.signal(SIGQUIT);
  REQUIRE(holds(monitor.read_until(kLeaveScreen), kLeaveScreen));
  const int status = monitor.changed();
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("q leaves the monitor, also after a stop, and keys are not shown") {
  const ScratchHome scratch;
  SamplingDaemon daemon(scratch.home());
  tests::Screenful monitor({{BIN_DIR "/dtrain", "monitor", "4"}, {}, {}, {}});
  REQUIRE(holds(monitor.read_until("4.train"), "q leaves"));
  monitor.signal(SIGTSTP);
  REQUIRE(WIFSTOPPED(monitor.changed()));
  monitor.signal(SIGCONT);
  REQUIRE(holds(monitor.read_until("4.train"), kEnterScreen));
  monitor.type("xq");
  const std::string rest = monitor.read_until(kLeaveScreen);
  CHECK(holds(rest, kLeaveScreen));
  CHECK(!holds(rest, "x"));
  const int status = monitor.changed();
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("keys show the replicas that a terminal has no rows for") {
  const ScratchHome scratch;
  SamplingDaemon daemon(scratch.home());
  daemon.replicas.clear();
  for (int number = 1; number <= 60; ++number) daemon.replicas.push_back(fmt::format("4.worker.{}", number));
  tests::Screenful monitor({{BIN_DIR "/dtrain", "monitor", "4"}, {}, {}, {}});   // of 24 rows
  const std::string begin = monitor.read_until("lines 1-20 of 60");
  CHECK(holds(begin, "4.worker.20"));
  REQUIRE(!holds(begin, "4.worker.21"));
  monitor.type("\x1b[F");
  const std::string end = monitor.read_until("lines 41-60 of 60");
  CHECK(holds(end, "4.worker.60"));
  CHECK(holds(end, "MEM-Used"));
  monitor.type("\x1b[A");
  CHECK(holds(monitor.read_until("lines 40-59 of 60"), "lines 40-59 of 60"));
  monitor.type("q");
  CHECK(WIFEXITED(monitor.changed()));
}

TEST_CASE("a terminal whose cursor does not move gets one sample, without escapes") {
  const ScratchHome scratch;
  SamplingDaemon daemon(scratch.home());
  tests::Screenful monitor({{BIN_DIR "/dtrain", "monitor", "4"}, {}, {}, {}}, "dumb");
  const std::string seen = monitor.read_until("4.train");
  CHECK(holds(seen, "4.train"));
  REQUIRE(!holds(seen, "\x1b"));
  CHECK(WIFEXITED(monitor.changed()));
}

TEST_CASE("without an ID the monitor shows the newest here that runs, before a newer one that is over") {
  const ScratchHome scratch;
  SamplingDaemon daemon(scratch.home());
  daemon.show.mutable_experiment()->set_id("5");  // the newest of all
  pb::ExperimentInfo* runs = daemon.list.add_experiments();
  runs->set_id("4");
  runs->set_state("RUNNING");
  runs->set_project_dir(project_dir());
  tests::Screenful monitor({{BIN_DIR "/dtrain", "monitor"}, {}, {}, {}}, "dumb");
  CHECK(holds(monitor.read_until("4.train"), "4.train"));
  CHECK(WIFEXITED(monitor.changed()));
  CHECK(daemon.asked_monitor.id() == "4");
}

}  // namespace
}  // namespace dtrain::cli
