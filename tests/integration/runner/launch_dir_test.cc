#include "runner/launch_dir.h"

#include <sys/wait.h>

#include <fstream>

#include "runner/process.h"
#include "tests/integration/runner/kept_launch.h"

namespace dtrain::runner {
namespace {

struct Folder {
  std::filesystem::path path = make_temporary_directory();
  LaunchDir directory{path};
  Folder() = default;
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { std::filesystem::remove_all(path); }
};

const ReplicaId kReplica{{4, 2}, Role::Worker, 1};

TEST_CASE("launch.json keeps every field, bytes that are no text too") {
  Folder folder;
  LaunchFile launch;
  launch.experiment = {4, 2};
  launch.attempt = 3;
  launch.key = "0123456789abcdef0123456789abcdef";
  launch.lease_ms = 600'000;
  launch.grace_ms = 5;
  launch.spool_limit_bytes = uint64_t{1} << 40;
  launch.work_root = "/tmp/\xff";
  launch.replicas = {{kReplica,
                      3,
                      {"python", "\xc3\x28", "line\nbreak", ""},
                      "/data/Müller",
                      {{"A", "b"}, {"BYTES", std::string("\xfe\x01", 2)}},
                      {"/sys/fs/cgroup/a", "/sys/fs/cgroup/b"}}};
  REQUIRE(folder.directory.write_launch(launch).ok());
  const auto read = folder.directory.read_launch();
  REQUIRE(read.ok());
  REQUIRE(read->has_value());
  const LaunchFile& again = **read;
  CHECK(again.experiment == launch.experiment);
  CHECK(again.attempt == 3);
  CHECK(again.key == launch.key);
  CHECK(again.lease_ms == 600'000);
  CHECK(again.grace_ms == 5);
  CHECK(again.spool_limit_bytes == uint64_t{1} << 40);
  CHECK(again.work_root == launch.work_root);
  REQUIRE(again.replicas.size() == 1);
  CHECK(again.replicas[0].id == kReplica);
  CHECK(again.replicas[0].attempt == 3);
  CHECK(again.replicas[0].argv == launch.replicas[0].argv);
  CHECK(again.replicas[0].cwd == launch.replicas[0].cwd);
  CHECK(again.replicas[0].env == launch.replicas[0].env);
  CHECK(again.replicas[0].cgroups == launch.replicas[0].cgroups);
}

TEST_CASE("an exit file keeps every field") {
  Folder folder;
  const ExitFile exit{137, 9, true, "out of memory", 1'700'000'000'123, 1.5, 2, 3, 4, 5};
  REQUIRE(folder.directory.write_exit(kReplica, exit).ok());
  const auto read = folder.directory.read_exit(kReplica);
  REQUIRE((read.ok() && read->has_value()));
  const ExitFile& again = **read;
  CHECK(again.code == 137);
  CHECK(again.signal == 9);
  CHECK(again.memory_kill);
  CHECK(again.cause == "out of memory");
  CHECK(again.ended_unix_ms == 1'700'000'000'123);
  CHECK(again.cpu_seconds == 1.5);
  CHECK(again.memory_peak_bytes == 2);
  CHECK(again.read_bytes == 3);
  CHECK(again.written_bytes == 4);
  CHECK(again.log_bytes == 5);
}

TEST_CASE("what is missing is no error, what is damaged is") {
  Folder folder;
  CHECK(!(*folder.directory.read_launch()).has_value());
  CHECK(!(*folder.directory.read_exit(kReplica)).has_value());
  REQUIRE(folder.directory.write_keeper({identify(::getpid())}).ok());
  const std::string good = *read_small_file(folder.path / "keeper.json");
  for (size_t size = 0; size + 1 < good.size(); ++size) {
    std::ofstream(folder.path / "keeper.json") << good.substr(0, size);
    const auto read = folder.directory.read_keeper();
    REQUIRE(!read.ok());
    CHECK(read.error().code == Code::DataLoss);
  }
  std::ofstream(folder.path / "keeper.json") << R"({"format": 99})";
  CHECK(folder.directory.read_keeper().error().message.find("has format 99") != std::string::npos);
  std::ofstream(folder.path / "keeper.json") << R"({"format": 1, "keeper": {"pid": "x"}})";
  CHECK(!folder.directory.read_keeper().ok());
}

TEST_CASE("a disk that can't take a record is an error and leaves the old record") {
  const LaunchDir nowhere("/no/such/folder");
  CHECK(!nowhere.write_exit(kReplica, {}).ok());
}

TEST_CASE("a process is told from others by its start; a dead one is not alive") {
  CHECK(is_alive(identify(::getpid())));
  ProcessIdentity other = identify(::getpid());
  other.start_ticks += 1;
  CHECK(!is_alive(other));
  ProcessIdentity rebooted = identify(::getpid());
  rebooted.boot_id = "another boot";
  CHECK(!is_alive(rebooted));

  Result<Child> child = spawn({.argv = {std::string(BIN_DIR) + "/fake_trainer", "--hang"}});
  REQUIRE(child.ok());
  const ProcessIdentity identity = identify(child->pid);
  CHECK(is_alive(identity));
  ::kill(child->pid, SIGKILL);
  REQUIRE(wait_readable(child->pidfd.get()));
  CHECK(!is_alive(identity));  // a zombie
  try_reap(*child);
  CHECK(!is_alive(identity));
  CHECK(!is_alive({}));
}

TEST_CASE("a launch's directory is named by experiment and attempt") {
  CHECK(LaunchDir::name_of({4, 2}, 1) == "4.2@1");
  CHECK(LaunchDir("/l/4.2@1").spool(kReplica, 7) == "/l/4.2@1/spool.4.2.worker.1.7");
}

}  // namespace
}  // namespace dtrain::runner
