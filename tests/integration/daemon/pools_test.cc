#include "daemon/pools.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "daemon/program_run.h"
#include "daemon/queue.h"
#include "daemon/wait_reason.h"
#include "tests/integration/daemon/served_daemon.h"
#include "tests/support/variable.h"

namespace dtrain::daemon {
namespace {

namespace fs = std::filesystem;

constexpr const char* kHang = "echo $$ > hangs; exec sleep 1000\n";

// Programs of Slurm's names that do as the test says. `jobs` is what squeue prints; sbatch adds a job 17 to it, in the
// state that `state` has, once it has done what `submit` says; squeue does what `list` says before. Each call of sbatch
// and scancel leaves a line in `calls`.
struct FakeSlurm {
  explicit FakeSlurm(const fs::path& where) : folder(where) {
    if (!fs::create_directories(folder)) return;   // an earlier daemon's
    for (const char* file : {"jobs", "submit", "list"}) say(file, "");
    say("state", "PENDING|None");
    program("sbatch", R"sh(cat > /dev/null
for word; do case $word in --job-name=*) name=${word#*=};; esac; done
echo "sbatch $name" >> calls
. ./submit
echo "17|$(cat state)|$name" > jobs
echo 17
)sh");
    program("scancel", "echo \"scancel $1\" >> calls\n");
    program("squeue", ". ./list\ncat jobs\n");
  }
  ~FakeSlurm() {
    pid_t hangs = 0;
    if (std::ifstream(folder / "hangs") >> hangs) ::kill(hangs, SIGKILL);
  }
  FakeSlurm(const FakeSlurm&) = delete;
  FakeSlurm& operator=(const FakeSlurm&) = delete;

  void program(const std::string& name, const std::string& script) const {
    std::ofstream(folder / name) << "#!/bin/sh\ncd '" << folder.string() << "'\n" << script;
    REQUIRE(::chmod((folder / name).c_str(), 0755) == 0);
  }
  void say(const std::string& file, const std::string& text) const { std::ofstream(folder / file) << text; }
  std::vector<std::string> calls(const std::string& begin = "") const {
    std::vector<std::string> lines;
    std::ifstream file(folder / "calls");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with(begin)) lines.push_back(line);
    }
    return lines;
  }

  const fs::path folder;
  const test::Variable path{"PATH", folder.string() + ":" + std::getenv("PATH")};
};

SlurmPool a_pool() {
  SlurmPool pool;
  pool.name = "gpu";
  pool.cpus = 4;
  pool.memory_bytes = uint64_t{1} << 30;
  pool.hosts_max = 2;
  pool.time_ms = 3'600'000;
  return pool;
}

PoolTimes quick() {
  using std::chrono::milliseconds;
  return {milliseconds(5), milliseconds(5), milliseconds(60'000), milliseconds(10), milliseconds(20)};
}

struct PoolScene {
  explicit PoolScene(const fs::path& root, const PoolTimes& times = quick(), const SlurmPool& pool = a_pool())
      : slurm(root / "slurm"), daemon(home_below(root)), keys(HostKeys::open(daemon.home.keys()).value()) {
    daemon.scheduler.add_pool(facts_of(pool));
    pools.emplace(PoolParts{daemon.loop, daemon.home, *daemon.store, daemon.scheduler, daemon.runner_api, *keys, PortRange(),
                            [] { return Result<Endpoint>(Endpoint{"10.0.0.1", 7077}); }},
                  std::vector{pool}, times);
    daemon.scheduler.on_turn = [this] { pools->after_turn(); };
    REQUIRE(pools->load().ok());
  }
  ~PoolScene() {
    daemon.scheduler.on_turn = nullptr;
    pools->stop();
  }
  void submit(const std::string& id) { REQUIRE(daemon.scheduler.submit(a_submission(id), {}).ok()); }
  pb::PoolInfo shown() const {
    pb::HostsReply reply;
    pools->describe(reply);
    REQUIRE(reply.pools_size() == 1);
    return reply.pools(0);
  }
  std::string reason() const { return wait_reason(daemon.scheduler.model(), {1, 0}, boottime_ms()); }

  FakeSlurm slurm;
  ServedDaemon daemon;
  std::unique_ptr<HostKeys> keys;
  std::optional<Pools> pools;
};

TEST_CASE("what is asked for outlives the daemon, and is asked for once") {
  test::TemporaryFolder folder;
  {
    PoolScene scene(folder.path());
    scene.submit("a");
    // Slurm has it, and this daemon dies before it hears so.
    scene.slurm.say("submit", "echo \"17|PENDING|Priority|$name\" > jobs\n" + std::string(kHang));
    scene.daemon.until([&] { return fs::file_size(scene.slurm.folder / "jobs") > 0; });
  }
  PoolScene scene(folder.path());
  scene.daemon.until([&] { return !scene.shown().allocations().empty() && scene.shown().allocations(0).job() == "17"; });
  scene.daemon.until([&] { return scene.reason().find("job 17 is in the queue of Slurm (Priority)") != std::string::npos; });
  CHECK(scene.slurm.calls("sbatch").size() == 1);
  CHECK(scene.daemon.store->allocations()->records.at(0).job() == "17");
}

TEST_CASE("what Slurm never heard of is asked for again by the next daemon") {
  test::TemporaryFolder folder;
  {
    PoolScene scene(folder.path());
    scene.submit("a");
    scene.slurm.say("submit", kHang);
    scene.daemon.until([&] { return scene.slurm.calls("sbatch").size() == 1; });
  }
  PoolScene scene(folder.path());
  scene.slurm.say("submit", "");
  scene.daemon.until([&] { return scene.slurm.calls("sbatch").size() == 2; });
  const auto calls = scene.slurm.calls("sbatch");
  CHECK(calls[0] != calls[1]);   // no number is given twice
}

TEST_CASE("a refusal is said, and asked again after a while") {
  test::TemporaryFolder folder;
  PoolTimes times = quick();
  times.first_retry = std::chrono::milliseconds(1);
  times.last_retry = std::chrono::minutes(1);
  PoolScene scene(folder.path(), times);
  scene.slurm.say("submit", "echo warning >&2; echo 'sbatch: error: invalid account' >&2; exit 1\n");
  scene.submit("a");
  scene.daemon.until([&] { return scene.slurm.calls("sbatch").size() >= 3; });
  scene.daemon.until([&] { return scene.reason().find("gpu is asked again later: sbatch: error: invalid account") != std::string::npos; });
  scene.daemon.until([&] { return scene.daemon.store->allocations()->records.empty(); });
  CHECK(fs::is_empty(scene.daemon.home.keys() / "hosts"));
}

TEST_CASE("no program of Slurm is no end of the daemon") {
  test::TemporaryFolder folder;
  PoolScene scene(folder.path());
  fs::remove(scene.slurm.folder / "sbatch");
  const test::Variable bare("PATH", scene.slurm.folder.string());   // nor that of this machine's own Slurm
  scene.submit("a");
  scene.daemon.until([&] { return !scene.shown().trouble().empty(); });
  CHECK(scene.shown().trouble() == "there is no sbatch in the daemon's PATH");
}

TEST_CASE("while squeue fails nothing is concluded, and a job that is gone is asked for again") {
  test::TemporaryFolder folder;
  PoolScene scene(folder.path());
  scene.slurm.say("state", "FAILED|None");
  scene.slurm.say("list", "echo 'squeue: error: no controller' >&2; exit 1\n");
  scene.submit("a");
  scene.daemon.until([&] { return scene.shown().trouble() == "squeue: error: no controller"; });
  CHECK(scene.slurm.calls("sbatch").size() == 1);
  scene.slurm.say("list", "");
  scene.daemon.until([&] { return scene.slurm.calls("sbatch").size() == 2; });
  CHECK(scene.slurm.calls("scancel").empty());
}

TEST_CASE("hosts that never come are not waited for") {
  test::TemporaryFolder folder;
  PoolTimes times = quick();
  times.join_within = std::chrono::milliseconds(20);
  PoolScene scene(folder.path(), times);
  scene.slurm.say("state", "RUNNING|None");
  scene.submit("a");
  scene.daemon.until([&] { return scene.shown().trouble().find("job 17 runs, and 0 of 1 host joined") == 0; });
  scene.daemon.until([&] { return scene.slurm.calls("scancel 17").size() >= 1; });
}

TEST_CASE("a person's key of the same name stays that person's") {
  test::TemporaryFolder folder;
  PoolScene scene(folder.path());
  const AccessKey own = scene.keys->invite("gpu-1", {"10.0.0.1", 7077}).value();
  scene.submit("a");
  scene.daemon.until([&] { return scene.slurm.calls("sbatch").size() == 1; });
  CHECK(scene.keys->holder_of(own.certificate).ok());
  CHECK(scene.slurm.calls("sbatch").front().ends_with("-gpu-2"));
}

TEST_CASE("hosts that come and are of no use are not asked for again at once") {
  test::TemporaryFolder folder;
  PoolTimes times = quick();
  times.first_retry = times.last_retry = std::chrono::minutes(10);
  SlurmPool pool = a_pool();
  pool.idle_release_ms = 1;
  PoolScene scene(folder.path(), times, pool);
  scene.slurm.say("state", "RUNNING|None");
  scene.submit("a");
  scene.daemon.until([&] { return !scene.shown().allocations().empty() && scene.shown().allocations(0).state() == "RUNNING"; });
  Host host = a_host(1);   // it has less than its pool says
  REQUIRE(scene.pools->admit(scene.shown().allocations(0).name(), host).ok());
  scene.daemon.scheduler.handle(HostConnected{host, {}});
  scene.daemon.until([&] { return !scene.slurm.calls("scancel 17").empty(); });   // again and again, as long as it is there
  CHECK(scene.shown().trouble().find("gpu-1 came and 1 was not placed there: needs 2 cpus") == 0);
  scene.slurm.say("jobs", "");
  scene.daemon.until([&] { return scene.shown().allocations().empty(); });
  CHECK(scene.slurm.calls("sbatch").size() == 1);
}

TEST_CASE("a job of this daemon's that it knows nothing of is cancelled, and nobody else's") {
  test::TemporaryFolder folder;
  PoolScene scene(folder.path());
  scene.submit("a");
  scene.daemon.until([&] { return !scene.shown().allocations().empty() && !scene.shown().allocations(0).job().empty(); });
  const std::string name = scene.slurm.calls("sbatch").front().substr(7);
  const std::string stray = name.substr(0, name.rfind('-')) + "-77";
  scene.slurm.say("jobs", "17|PENDING|None|" + name + "\n18|RUNNING|None|" + stray + "\n19|RUNNING|None|dtrain-other-gpu-1\n");
  scene.daemon.until([&] { return !scene.slurm.calls("scancel").empty(); });
  for (const std::string& call : scene.slurm.calls("scancel")) CHECK(call == "scancel 18");
}

TEST_CASE("who comes with a lent key is one of its hosts, as long as somebody wants them") {
  test::TemporaryFolder folder;
  PoolScene scene(folder.path());
  scene.submit("a");
  scene.daemon.until([&] { return !scene.shown().allocations().empty() && !scene.shown().allocations(0).job().empty(); });
  Host host = a_host();
  CHECK(scene.pools->admit("gpu-99", host).error().code == Code::PermissionDenied);
  const std::string name = scene.shown().allocations(0).name();
  REQUIRE(scene.pools->admit(name, host).ok());
  CHECK(host.pool == "gpu");
  CHECK(host.kept_lane.empty());   // it is all of its allocation
  scene.daemon.scheduler.handle(HostConnected{host, {}});
  scene.daemon.until([&] { return scene.daemon.scheduler.model().seated.contains(host.id); });
  CHECK(scene.shown().allocations(0).joined() == 1);
  scene.daemon.scheduler.handle(KillWanted{{1, 0}});
  scene.daemon.scheduler.handle(ReplicaReleased{parse_replica_id("1.train").value(), 1, "", host.id});
  // Unused; but for five minutes it stays.
  scene.daemon.until([&] { return scene.daemon.scheduler.model().live.empty(); });
  scene.daemon.loop.run_for(std::chrono::milliseconds(30));
  CHECK(scene.slurm.calls("scancel").empty());
  scene.slurm.say("jobs", "");
  scene.daemon.until([&] { return scene.shown().allocations().empty(); });
  CHECK(scene.pools->admit(name, host).error().code == Code::PermissionDenied);
  CHECK_FALSE(scene.keys->revoke(name).ok());
}

TEST_CASE("what a program prints, and how it fails") {
  boost::asio::io_context loop;
  const auto outcome = [&](std::vector<std::string> words, const std::string& input = "",
                           std::chrono::milliseconds patience = std::chrono::seconds(10)) {
    std::optional<Result<std::string>> got;
    run_program(loop, std::move(words), input, patience, [&](const Result<std::string>& result) { got.emplace(result); });
    CHECK_FALSE(got.has_value());
    loop.run();
    loop.restart();
    REQUIRE(got.has_value());
    return *got;
  };
  CHECK(outcome({"cat"}, std::string(1 << 20, 'x')).value().size() == 1 << 20);
  CHECK(outcome({"sh", "-c", "echo one >&2; echo two"}).value() == "two\n");
  CHECK(outcome({"sh", "-c", "echo one >&2; echo two >&2; exit 3"}).error().message == "sh: two");
  CHECK(outcome({"sh", "-c", "exit 3"}).error().message == "sh: exit code 3");
  CHECK(outcome({"no-such-program"}).error().code == Code::NotFound);
  CHECK(outcome({"sleep", "1000"}, "", std::chrono::milliseconds(1)).error().message == "sleep: it did not end in time");
}

}  // namespace
}  // namespace dtrain::daemon
