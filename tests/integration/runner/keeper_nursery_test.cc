#include "runner/keeper_nursery.h"

#include <sys/wait.h>

#include <csignal>

#include "tests/integration/runner/kept_launch.h"

namespace dtrain::runner {
namespace {

struct Nest {
  std::filesystem::path folder = make_temporary_directory();
  KeeperNursery nursery{std::filesystem::path(BIN_DIR) / "runner_program", folder / "keepers.log"};
  Nest() = default;
  Nest(const Nest&) = delete;
  Nest& operator=(const Nest&) = delete;
  ~Nest() { std::filesystem::remove_all(folder); }

  LaunchDir launch(const std::string& name) const {
    const LaunchDir directory(folder / name);
    std::filesystem::create_directory(directory.path());
    LaunchRecord record;
    record.experiment = {4, 0};
    record.key = record.ctl = name + folder.filename().string();
    REQUIRE(directory.write_launch(record).ok());
    return directory;
  }
};

std::string word_of(const SpawnedKeeper& keeper) {
  REQUIRE(wait_readable(keeper.ready.get()));
  char word[1024];
  const ssize_t size = ::read(keeper.ready.get(), word, sizeof word);
  return std::string(word, static_cast<size_t>(std::max<ssize_t>(size, 0)));
}

pid_t pid_of(const LaunchDir& directory) {
  const auto facts = read_facts(directory);
  REQUIRE((facts.ok() && facts->keeper));
  return facts->keeper->pid;
}

TEST_CASE("keepers of one nursery are processes of their own, and ps names their launch") {
  Nest nest;
  const LaunchDir one = nest.launch("4@1"), two = nest.launch("4@2");
  auto first = nest.nursery.start(one);
  auto second = nest.nursery.start(two);
  REQUIRE((first.ok() && second.ok()));
  CHECK(word_of(*first) == "ready\n");
  CHECK(word_of(*second) == "ready\n");
  const pid_t pid = pid_of(one);
  CHECK(pid != pid_of(two));
  CHECK(::getsid(pid) == pid);
  const auto command = read_small_file(fmt::format("/proc/{}/cmdline", pid));
  REQUIRE(command);
  CHECK(command->find(one.path().string()) != std::string::npos);

  ::kill(pid, SIGTERM);
  CHECK(wait_readable(first->process.pidfd.get()));
  CHECK(is_alive(*read_facts(two)->keeper));
  ::kill(pid_of(two), SIGTERM);
  CHECK(wait_readable(second->process.pidfd.get()));
}

TEST_CASE("a keeper that can't begin says why") {
  Nest nest;
  auto keeper = nest.nursery.start(LaunchDir(nest.folder / "nothing"));
  REQUIRE(keeper.ok());
  CHECK(word_of(*keeper).ends_with("record is not there"));
}

TEST_CASE("keepers outlive their nursery, and a killed nursery is replaced") {
  Nest nest;
  const LaunchDir one = nest.launch("4@1"), two = nest.launch("4@2");
  auto first = nest.nursery.start(one);
  REQUIRE(first.ok());
  CHECK(word_of(*first) == "ready\n");
  const ProcessTable table = ProcessTable::read();
  const pid_t nursery = table.rows.at(pid_of(one)).parent;
  REQUIRE(table.rows.at(nursery).parent == ::getpid());
  ::kill(nursery, SIGKILL);
  siginfo_t info;
  REQUIRE(::waitid(P_PID, static_cast<id_t>(nursery), &info, WEXITED | WNOWAIT) == 0);

  auto second = nest.nursery.start(two);
  REQUIRE(second.ok());
  CHECK(word_of(*second) == "ready\n");
  CHECK(is_alive(*read_facts(one)->keeper));
  for (const LaunchDir& each : {one, two}) ::kill(pid_of(each), SIGTERM);
  CHECK(wait_readable(first->process.pidfd.get()));
  CHECK(wait_readable(second->process.pidfd.get()));
}

TEST_CASE("a keeper that was never started ends when its launch is taken away") {
  Nest nest;
  const LaunchDir one = nest.launch("4@1");
  LaunchRecord record = **one.read_launch();
  record.replicas = {{{{4, 0}, Role::Worker, 1}, 1, {"true"}, "/", {}, {}}};
  REQUIRE(one.write_launch(record).ok());
  auto keeper = nest.nursery.start(one);
  REQUIRE(keeper.ok());
  CHECK(word_of(*keeper) == "ready\n");
  std::filesystem::remove_all(one.path());
  CHECK(wait_readable(keeper->process.pidfd.get()));
}

TEST_CASE("keepers whose log can't be written are refused") {
  KeeperNursery nursery(std::filesystem::path(BIN_DIR) / "runner_program", "/no/such/folder/log");
  CHECK(!nursery.start(LaunchDir("/nowhere")).ok());
}

}  // namespace
}  // namespace dtrain::runner
