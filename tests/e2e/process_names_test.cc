// What `ps` and `top` show of dtrain's own processes.
#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <sstream>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

std::string name_of(pid_t pid) {
  std::string name = read_file("/proc/" + std::to_string(pid) + "/comm");
  return name.substr(0, name.find('\n'));
}

std::string first_word_of(pid_t pid) {
  std::string words = read_file("/proc/" + std::to_string(pid) + "/cmdline");
  return words.substr(0, words.find('\0'));
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  fs::path tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : fs::directory_iterator(tasks)) {
    std::istringstream list(read_file(task.path() / "children"));
    for (pid_t child; list >> child;) children.push_back(child);
  }
  return children;
}

}  // namespace

TEST_CASE("every process has a name of its own, however it was started") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain:\n  run: echo at work; exec sleep 1000\n");
  CHECK(cluster.run({"train", "-d"}, project).code == 0);
  auto logs = cluster.start({"logs", "-f", "1"}, project);
  logs->wait_for("at work");
  CHECK(name_of(cluster.processes("daemon run").at(0)) == "dtrain-daemon");
  CHECK(name_of(cluster.processes("keeper ").at(0)) == "dtrain-keeper");
  pid_t runner = cluster.processes("runner run").at(0);
  CHECK(name_of(runner) == "dtrain-runner");
  bool has_nursery = false;
  for (pid_t child : children_of(runner)) {
    has_nursery = has_nursery || name_of(child) == "dtrain-nursery";
    CHECK(first_word_of(child) == "dtrain");
  }
  CHECK(has_nursery);

  // The runner starts the next daemon in another way than a command does.
  logs.reset();
  pid_t first = cluster.processes("daemon run").at(0);
  int changes = inotify_init1(IN_CLOEXEC);
  REQUIRE(inotify_add_watch(changes, (cluster.home() / "daemon.lock").c_str(), IN_MODIFY) >= 0);
  REQUIRE(::kill(first, SIGKILL) == 0);
  pollfd written{changes, POLLIN, 0};  // by the next one, which holds the lock now
  CHECK(poll(&written, 1, 30'000) == 1);
  close(changes);
  pid_t second = cluster.processes("daemon run").at(0);
  CHECK(second != first);
  CHECK(name_of(second) == "dtrain-daemon");
  CHECK(first_word_of(second) == "dtrain");
  CHECK(cluster.run({"kill", "1"}).code == 0);  // waits until it listens
  CHECK(cluster.run({"wait", "1"}).code == 130);
}
