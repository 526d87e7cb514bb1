#include "runner/cgroup.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "runner/process.h"
#include "tests/integration/runner/kept_launch.h"
#include "tests/support/project.h"
#include "tests/support/skipped.h"

namespace dtrain::runner {
namespace {

constexpr const char* kNoCgroups = "no control groups may be made here";

std::vector<CgroupChoice> usable() {
  std::vector<CgroupChoice> all;
  for (const CgroupChoice choice : {CgroupChoice::V1, CgroupChoice::Best}) {
    if (claim_cgroups(choice).kind != "none") all.push_back(choice);
  }
  return all;
}

LaunchRecord launch_of(uint32_t replicas) {
  LaunchRecord launch;
  launch.experiment = {4, 0};
  launch.key = fmt::format("{:016x}{:016x}", ::getpid(), boottime_ms());
  for (uint32_t index = 1; index <= replicas; ++index) {
    launch.replicas.push_back({{{4, 0}, Role::Worker, index}, 1, {}, "", {}, {}});
  }
  return launch;
}

std::string trainer() {
  return std::string(BIN_DIR) + "/fake_trainer";
}

TEST_CASE("without cgroups nothing is asked of them") {
  const CgroupSupport none = claim_cgroups(CgroupChoice::None);
  CHECK(none.kind == "none");
  CHECK(!none.note.empty());
  LaunchRecord launch = launch_of(1);
  CHECK(make_launch_cgroups(none, {{launch.replicas[0].id, {}}}, launch).ok());
  CHECK(launch.replicas[0].cgroups.empty());
  CHECK(cgroup_members({}).empty());
  CHECK(!cgroup_kill({}));
  CHECK(uncapped(none) == std::vector<std::string>{"cpus", "mem"});
  const Status capped = make_launch_cgroups(none, {{launch.replicas[0].id, {1, true, 0, false}}}, launch);
  REQUIRE(!capped.ok());
  CHECK(capped.error().code == Code::FailedPrecondition);
  CHECK(capped.error().message == "no hard limit can be kept here: not wanted");
  CHECK(remove_launch_cgroups(launch).ok());
}

TEST_CASE("claiming leaves no trace, nor those of runners that were killed while they claimed") {
  const auto choices = usable();
  if (choices.empty()) return tests::say_skipped(kNoCgroups);
  for (const CgroupChoice choice : choices) {
    const pid_t gone = fork();
    if (gone == 0) _exit(0);
    REQUIRE(waitpid(gone, nullptr, 0) == gone);
    const std::filesystem::path folder = claim_cgroups(choice).tracking;
    std::filesystem::create_directory(folder / fmt::format("dtrain-probe.{}", gone));
    const CgroupSupport support = claim_cgroups(choice);
    CAPTURE(support.kind);
    for (const auto& entry : std::filesystem::directory_iterator(support.tracking)) {
      CHECK(entry.path().filename().string().find("dtrain-probe") == std::string::npos);
    }
  }
}

TEST_CASE("a group knows, kills and measures what runs in it, forked children too") {
  const auto choices = usable();
  if (choices.empty()) return tests::say_skipped(kNoCgroups);
  for (const CgroupChoice choice : choices) {
    const CgroupSupport support = claim_cgroups(choice);
    CAPTURE(support.kind);
    LaunchRecord launch = launch_of(2);
    const ReplicaId first = launch.replicas[0].id;
    const ReplicaId second = launch.replicas[1].id;
    const CgroupLimits capped{1, true, uint64_t{1} << 33, true};
    const Status made = make_launch_cgroups(support, {{first, capped}, {second, capped}}, launch);
    REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().message));
    const auto groups = launch.replicas[0].cgroups;
    REQUIRE(!groups.empty());

    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    const Fd output(ends[0]);
    Fd write_end(ends[1]);
    Result<Child> child = spawn({.argv = {trainer(), "--fork", "--setsid", "--print", "ready",
                                          "--hang", "--then", "--eat", "20000000", "--hang"},
                                 .cgroups = groups,
                                 .output_fd = write_end.get()});
    REQUIRE_MESSAGE(child.ok(), (child.ok() ? "" : child.error().message));
    write_end.reset();
    char bytes[16];
    REQUIRE(::read(output.get(), bytes, sizeof bytes) == 6);
    CHECK(cgroup_members(groups).size() == 2);
    std::vector<Fd> members;
    for (const pid_t pid : cgroup_members(groups)) {
      members.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    }
    CHECK(cgroup_members(launch.replicas[1].cgroups).empty());
    CHECK(remove_cgroups(groups).error().code == Code::FailedPrecondition);

    CHECK(cgroup_kill(groups));
    // A process that ends closes its files before it leaves its groups: end of file is not enough.
    for (const Fd& member : members) REQUIRE(wait_readable(member.get()));
    CHECK(::read(output.get(), bytes, sizeof bytes) == 0);
    CHECK(WTERMSIG(*try_reap(*child)) == SIGKILL);
    CHECK(cgroup_members(groups).empty());
    const CgroupUsage usage = cgroup_usage(groups);
    if (choice == CgroupChoice::Best) CHECK(usage.cpu_seconds.value_or(0) > 0);
    if (!support.memory.empty()) CHECK(usage.memory_peak_bytes.value_or(0) > 0);
    CHECK(usage.memory_kills == 0);
    CHECK(remove_launch_cgroups(launch).ok());
    CHECK(remove_launch_cgroups(launch).ok());  // again: gone already
    for (const std::string& group : groups) {
      CHECK(!std::filesystem::exists(std::filesystem::path(group).parent_path()));
    }
  }
}

// The kernel lists one that somebody moved in from outside of this PID namespace as 0, and to signal
// that is to signal all of one's own process group.
TEST_CASE("a member without a number here is none of ours to kill") {
  const test::TemporaryFolder group;
  test::write_file(group / "freezer.state", "THAWED");
  test::write_file(group / "cgroup.procs", "0\n");
  CHECK(cgroup_members({group.path().string()}).empty());
  const pid_t child = ::fork();
  if (child == 0) {
    ::setpgid(0, 0);
    ::_exit(cgroup_kill({group.path().string()}) ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("the groups of a launch that was only begun go by its key") {
  const auto choices = usable();
  if (choices.empty()) return tests::say_skipped(kNoCgroups);
  for (const CgroupChoice choice : choices) {
    const CgroupSupport support = claim_cgroups(choice);
    CAPTURE(support.kind);
    LaunchRecord launch = launch_of(2);
    const CgroupLimits capped{1, true, uint64_t{1} << 33, true};
    const std::map<ReplicaId, CgroupLimits> limits = {{launch.replicas[0].id, capped},
                                                      {launch.replicas[1].id, capped}};
    REQUIRE(make_launch_cgroups(support, limits, launch).ok());
    remove_begun_cgroups(support, launch.key);
    for (const std::string& group : launch.replicas[0].cgroups) {
      CHECK(!std::filesystem::exists(std::filesystem::path(group).parent_path()));
    }
  }
}

TEST_CASE("without a cap one hierarchy is enough") {
  const auto choices = usable();
  if (choices.empty()) return tests::say_skipped(kNoCgroups);
  for (const CgroupChoice choice : choices) {
    const CgroupSupport support = claim_cgroups(choice);
    CAPTURE(support.kind);
    LaunchRecord launch = launch_of(1);
    REQUIRE(make_launch_cgroups(support, {{launch.replicas[0].id, {}}}, launch).ok());
    REQUIRE(launch.replicas[0].cgroups.size() == 1);
    CHECK(launch.replicas[0].cgroups[0].starts_with(support.tracking.string()));
    CHECK(remove_launch_cgroups(launch).ok());
  }
}

TEST_CASE("limits are written where the kernel reads them") {
  const auto choices = usable();
  if (choices.empty()) return tests::say_skipped(kNoCgroups);
  for (const CgroupChoice choice : choices) {
    const CgroupSupport support = claim_cgroups(choice);
    CAPTURE(support.kind);
    LaunchRecord launch = launch_of(1);
    const CgroupLimits limits{2, true, uint64_t{1} << 30, true};
    REQUIRE(make_launch_cgroups(support, {{launch.replicas[0].id, limits}}, launch).ok());
    const auto read = [&](const char* file) {
      for (const std::string& group : launch.replicas[0].cgroups) {
        if (auto text = read_small_file(std::filesystem::path(group) / file)) return *text;
      }
      return std::string();
    };
    if (!support.cpu.empty()) {
      const bool v1 = read("cpu.weight").empty();
      CHECK((v1 ? read("cpu.shares") : read("cpu.weight")) == (v1 ? "2048\n" : "200\n"));
      CHECK((v1 ? read("cpu.cfs_quota_us") : read("cpu.max")) ==
            (v1 ? "200000\n" : "200000 100000\n"));
    }
    if (!support.memory.empty()) {
      const bool v1 = read("memory.max").empty();
      CHECK((v1 ? read("memory.limit_in_bytes") : read("memory.max")) == "1073741824\n");
      CHECK((v1 ? read("memory.soft_limit_in_bytes") : read("memory.low")) == "1073741824\n");
    }
    CHECK(remove_launch_cgroups(launch).ok());
  }
}

TEST_CASE("a replica over its hard memory limit is killed, and the end says so") {
  const auto choices = usable();
  if (choices.empty()) return tests::say_skipped(kNoCgroups);
  for (const CgroupChoice choice : choices) {
    KeptLaunch kept(choice);
    CAPTURE(kept.support().kind);
    if (kept.support().memory.empty()) continue;
    const ReplicaId id = kept.add(1, {"--print", "eating", "--eat", "500000000", "--hang"});
    kept.keep({1, false, 64 << 20, true});
    kept.send_start();
    const ReplicaExit exit = kept.wait_exit(id);
    CHECK(exit.memory_kill);
    CHECK(exit.code == 137);
    CHECK(exit.cause == "out of memory: killed at its limit of 64 MiB");
    CHECK(exit.memory_peak_bytes > 60'000'000);
  }
}

TEST_CASE("a group that can't be joined is an error of the spawn, not a replica outside of it") {
  Result<Child> child = spawn({.argv = {trainer()}, .cgroups = {"/no/such/group"}});
  REQUIRE(!child.ok());
  CHECK(child.error().message.find("/no/such/group") != std::string::npos);
}

}  // namespace
}  // namespace dtrain::runner
