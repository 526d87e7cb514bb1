#include "runner/process_tree.h"

#include <fcntl.h>
#include <sys/wait.h>

#include <algorithm>

#include "runner/process.h"
#include "tests/integration/runner/kept_launch.h"
#include "tests/support/project.h"

namespace dtrain::runner {
namespace {

// A trainer that says "ready", then hangs with what it made.
struct Tree {
  Fd output;
  Child child;
  explicit Tree(std::vector<std::string> steps, std::map<std::string, std::string> env = {}) {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    output.reset(ends[0]);
    const Fd write_end(ends[1]);
    steps.insert(steps.begin(), std::string(BIN_DIR) + "/fake_trainer");
    auto spawned = spawn({.argv = steps, .env = std::move(env), .output_fd = write_end.get()});
    REQUIRE(spawned.ok());
    child = std::move(*spawned);
    char bytes[16];
    REQUIRE(::read(output.get(), bytes, sizeof bytes) == 6);
  }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  ~Tree() {
    if (child.pid <= 0) return;
    ::kill(-child.pid, SIGKILL);
    wait_readable(child.pidfd.get());
    try_reap(child);
  }
  uint64_t pipe_inode() const {
    struct stat status = {};
    ::fstat(output.get(), &status);
    return status.st_ino;
  }
};

std::string unique_key() {
  return fmt::format("{:032x}", boottime_ms() ^ ::getpid());
}

TEST_CASE("the table of those below us has them, their children and nobody else") {
  const Tree tree({"--fork", "--print", "ready", "--hang", "--then", "--hang"});
  const ProcessTable below = ProcessTable::read_below_self();
  const ProcessTable all = ProcessTable::read();
  size_t children = 0;
  for (const auto& [pid, row] : all.rows) {
    if (row.parent != tree.child.pid) continue;
    ++children;
    CHECK(below.rows.contains(pid));
  }
  CHECK(children > 0);
  REQUIRE(below.rows.contains(tree.child.pid));
  CHECK(below.rows.at(tree.child.pid).start_ticks == all.rows.at(tree.child.pid).start_ticks);
  CHECK(!below.rows.contains(::getpid()));
  CHECK(!below.rows.contains(::getppid()));
}

TEST_CASE("the table has ourselves and our parent") {
  const ProcessTable table = ProcessTable::read();
  const auto self = table.rows.find(::getpid());
  REQUIRE(self != table.rows.end());
  CHECK(self->second.parent == ::getppid());
  CHECK(self->second.session == ::getsid(0));
  CHECK(self->second.state == 'R');
  CHECK(self->second.start_ticks == identify(::getpid()).start_ticks);
  CHECK(self->second.resident_bytes > 100'000);
  CHECK(table.rows.contains(::getppid()));
}

TEST_CASE("each mark finds the tree, and no mark finds nothing") {
  const std::string key = unique_key();
  Tree tree({"--fork", "--print", "ready", "--hang", "--then", "--hang"},
            {{"DTRAIN_KEY", key}, {"DTRAIN_REPLICA", "4.ps.1"}});
  const auto count = [&](const TreeMarks& marks) {
    return find_tree(ProcessTable::read(), marks).size();
  };
  CHECK(count({}) == 0);
  CHECK(count({.sessions = {identify(tree.child.pid)}}) == 2);
  CHECK(count({.key = key}) == 2);
  CHECK(count({.key = key, .replica = "4.ps.1"}) == 2);
  CHECK(count({.key = key, .replica = "4.ps.11"}) == 0);
  CHECK(count({.key = key.substr(1)}) == 0);
  CHECK(count({.pipe_inodes = {tree.pipe_inode()}}) >= 2);  // our own read end is not counted
  ProcessIdentity reused = identify(tree.child.pid);
  reused.start_ticks -= 1;
  CHECK(count({.sessions = {reused}}) == 0);
}

TEST_CASE("a session is found after its leader died") {
  Tree tree({"--fork", "--print", "ready", "--hang", "--then", "--hang"});
  const ProcessIdentity leader = identify(tree.child.pid);
  ::kill(tree.child.pid, SIGKILL);
  REQUIRE(wait_readable(tree.child.pidfd.get()));
  CHECK(find_tree(ProcessTable::read(), {.sessions = {leader}}).size() == 1);
  try_reap(tree.child);
  CHECK(find_tree(ProcessTable::read(), {.sessions = {leader}}).size() == 1);
  CHECK(kill_tree({.sessions = {leader}}, kTestPatienceMs).value().empty());
  char byte;
  CHECK(::read(tree.output.get(), &byte, 1) == 0);
}

TEST_CASE("a process whose first thread has ended lives as long as another one does") {
  Tree tree({"--end-first-thread", "--print", "ready", "--hang"});
  const ProcessIdentity process = identify(tree.child.pid);
  CHECK(is_alive(process));
  CHECK(find_tree(ProcessTable::read(), {.sessions = {process}}).size() == 1);
  CHECK(kill_tree({.sessions = {process}}, kTestPatienceMs).value().empty());
  char byte;
  CHECK(::read(tree.output.get(), &byte, 1) == 0);
  CHECK(!is_alive(process));
}

TEST_CASE("a signal never reaches a process that took the number of a dead one") {
  Tree tree({"--print", "ready", "--hang"});
  std::vector<ProcessRow> rows =
      find_tree(ProcessTable::read(), {.sessions = {identify(tree.child.pid)}});
  REQUIRE(rows.size() == 1);
  rows[0].start_ticks += 1;
  CHECK(signal_processes(rows, SIGKILL) == 0);
  CHECK(is_alive(identify(tree.child.pid)));
  rows[0].start_ticks -= 1;
  CHECK(signal_processes(rows, SIGKILL) == 1);
  REQUIRE(wait_readable(tree.child.pidfd.get()));
}

TEST_CASE("TERM reaches a process that was stopped") {
  Tree tree({"--print", "ready", "--stop", "--hang"});
  // It is stopped a moment after it was ready.
  int status = 0;
  REQUIRE(::waitpid(tree.child.pid, &status, WUNTRACED) == tree.child.pid);
  REQUIRE(WIFSTOPPED(status));
  const auto rows = find_tree(ProcessTable::read(), {.sessions = {identify(tree.child.pid)}});
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].state == 'T');
  CHECK(signal_processes(rows, SIGTERM) == 1);
  REQUIRE(wait_readable(tree.child.pidfd.get()));
  CHECK(WTERMSIG(*try_reap(tree.child)) == SIGTERM);
}

TEST_CASE("processes below a keeper are sorted by whose they are") {
  Tree first({"--fork", "--setsid", "--print", "ready", "--hang", "--then", "--hang"});
  Tree second({"--print", "ready", "--hang"});
  Tree unmarked({"--print", "ready", "--hang"});
  const std::vector<TreeMarks> marks{{.sessions = {identify(first.child.pid)}},
                                     {.sessions = {identify(second.child.pid)}}};
  const auto trees = split_tree(ProcessTable::read(), ::getpid(), marks);
  REQUIRE(trees.size() == 3);
  CHECK(trees[0].size() == 2);
  REQUIRE(trees[1].size() == 1);
  CHECK(trees[1][0].pid == second.child.pid);
  CHECK(std::any_of(trees[2].begin(), trees[2].end(),
                    [&](const ProcessRow& row) { return row.pid == unmarked.child.pid; }));
  (void)kill_tree(marks[0], kTestPatienceMs);
}

TEST_CASE("of a launch's replica that has ended, nothing marks a process any more") {
  Tree stranger({"--fork", "--print", "ready", "--hang", "--then", "--hang"});
  const test::TemporaryFolder folder;
  const LaunchDir directory(folder.path());
  LaunchRecord launch;
  launch.experiment = {4, 0};
  launch.key = unique_key();
  REQUIRE(directory.write_launch(launch).ok());
  auto facts = FactsWriter::open(directory);
  REQUIRE(facts.ok());
  const ReplicaId id{{4, 0}, Role::Worker, 1};
  // Its number may have been given away, with a leader of a session that is gone by now.
  const ReplicaStart start{identify(stranger.child.pid), 1, stranger.pipe_inode(), ""};
  ::kill(stranger.child.pid, SIGKILL);
  REQUIRE(wait_readable(stranger.child.pidfd.get()));
  try_reap(stranger.child);
  const auto found = [&] { return find_tree(ProcessTable::read(), marks_of_launch(directory).value()); };
  SUBCASE("a replica") {
    REQUIRE(facts->add(id, start).ok());
    CHECK(found().size() == 1);
    REQUIRE(facts->add(id, ReplicaExit{}).ok());
    CHECK(found().empty());
  }
  SUBCASE("the keeper") {
    REQUIRE(facts->add(start.process).ok());
    CHECK(found().empty());
  }
  (void)kill_tree({.sessions = {start.process}}, kTestPatienceMs);
}

TEST_CASE("usage counts the whole tree") {
  Tree tree({"--eat", "30000000", "--fork", "--eat", "30000000", "--print", "ready", "--hang",
             "--then", "--hang"});
  const TreeUsage usage = tree_usage(ProcessTable::read(), {.sessions = {identify(tree.child.pid)}});
  CHECK(usage.processes == 2);
  CHECK(usage.memory_bytes > 60'000'000);
#ifndef __SANITIZE_THREAD__  // its shadow of what was eaten is several times as much
  CHECK(usage.memory_bytes < 200'000'000);
#endif
}

}  // namespace
}  // namespace dtrain::runner
