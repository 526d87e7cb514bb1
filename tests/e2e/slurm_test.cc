// Hosts that a real Slurm brings: its controller beside the daemon, its two nodes in network namespaces.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/network.h"
#include "tests/support/skipped.h"

using namespace dtrain::tests;

namespace {

struct SlurmScene {
  Network network{3};
  Cluster cluster;
  std::unique_ptr<Process> slurm;

  // Its jobs end with it, and must before the cluster does.
  ~SlurmScene() {
    if (!slurm) return;
    slurm->signal(SIGTERM);
    slurm->wait();
  }
  std::string unavailable() const {
    if (!network.unavailable().empty()) return network.unavailable();
    for (const char* program : {"/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/bin/sbatch", "/usr/sbin/munged"}) {
      if (::access(program, X_OK) != 0) return std::string(program) + " is not installed";
    }
    return "";
  }
  // A pool of hosts that hold two replicas of 2 cpus; the daemon's own host holds none.
  void start(const std::string& more = "") {
    const fs::path folder = cluster.folder() / "slurm";
    cluster.env["SLURM_CONF"] = (folder / "slurm.conf").string();
    slurm = std::make_unique<Process>(Command{{"python3", SOURCE_DIR "/tests/support/slurm.py", folder.string(),
                                               network.netns(0), network.netns(1), network.netns(2)},
                                              {}, {}, {}});
    slurm->wait_for("ready");
    fs::create_directories(cluster.home());
    write_file(cluster.home() / "config.yml", "listen: " + Network::address(0) + R"(:7077
host: {cpus: 1, mem: 1GiB}
pools:
  - slurm: {name: pool, cpus: 4, mem: 4GiB, max-hosts: 2, time: 1h)" + more + "}\n");
    start_daemon();
  }
  void start_daemon() {
    const Output started = here({"daemon", "start"});
    REQUIRE_MESSAGE(started.code == 0, started.all());
  }
  Command at_daemon(const std::vector<std::string>& words, const fs::path& directory = {}) const {
    Command command = cluster.command(words, directory);
    command.netns = network.netns(0);
    return command;
  }
  Output here(const std::vector<std::string>& words, const fs::path& directory = {}) const {
    return run(at_daemon(words, directory));
  }
  Output slurm_says(const std::vector<std::string>& words) const {
    return run({words, {}, cluster.env, network.netns(0)});
  }
  fs::path project(int replicas, const std::string& line, const std::string& more = "") {
    return cluster.project("project: p\ntrain:\n  framework: tensorflow\n  resources: {cpus: 2, mem: 512}\n" + more +
                           "  tensorflow: {distributed: {worker: " + std::to_string(replicas) + "}}\n  run: '" + line + "'\n");
  }
  // The names of all hosts, and their number in Slurm's jobs that are not over.
  std::vector<std::string> hosts() const {
    std::vector<std::string> names;
    const Json shown = facts(here({"hosts", "--json"}));
    for (const auto& host : shown.at("hosts")) names.push_back(host.at("name"));
    return names;
  }
  std::string jobs() const { return slurm_says({"squeue", "--noheader", "--format=%j"}).out; }
};

// What the first replica of an experiment waits at until the test lets it go.
struct Gate {
  fs::path path;
  explicit Gate(const fs::path& where) : path(where) { REQUIRE(::mkfifo(path.c_str(), 0600) == 0); }
  std::string wait() const { return "[ $DTRAIN_REPLICA != 1.master ] || read line < " + path.string(); }
  void open() const { std::ofstream(path) << "go\n"; }
};

}  // namespace

TEST_CASE("a gang that fits no host gets two of Slurm, and they go back") {
  SlurmScene scene;
  if (!scene.unavailable().empty()) return say_skipped(scene.unavailable());
  scene.start(", idle-release: 1s");
  const fs::path project = scene.project(4, "echo at $DTRAIN_ADDRESS; echo done > $OUTPUT_DIR/$DTRAIN_REPLICA");
  const Output train = scene.here({"train"}, project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  CHECK_MESSAGE(train.out.find("; pool may bring 2 hosts") != std::string::npos, train.out);
  CHECK_MESSAGE(train.out.find("2 hosts asked of pool: job ") != std::string::npos, train.out);
  for (int host = 1; host <= 2; ++host) {
    CHECK_MESSAGE(train.out.find("at " + Network::address(host)) != std::string::npos, train.out);
  }
  for (const std::string replica : {"1.master", "1.worker.1", "1.worker.2", "1.worker.3"}) {
    CHECK(read_file(project / "runs/1" / replica) == "done\n");
  }
  // The next one uses the hosts that are there; then nobody does.
  const Output again = scene.here({"train"}, project);
  REQUIRE_MESSAGE(again.code == 0, again.all());
  Process log({{"tail", "-n", "+1", "-F", (scene.cluster.home() / "daemon.log").string()}, {}, {}, {}});
  log.wait_for("pool-1: given back, nothing ran there for a while");
  log.wait_for("pool-1: job 1 ended (CANCELLED)");
  CHECK(scene.jobs().empty());
  CHECK(scene.hosts().size() == 1);
  CHECK(scene.cluster.processes("runner run --join -").empty());
  CHECK(fs::is_empty(scene.cluster.home() / "keys/hosts"));
}

TEST_CASE("an elastic gang asks Slurm for as many hosts as it may, and begins when all of them are there") {
  SlurmScene scene;
  if (!scene.unavailable().empty()) return say_skipped(scene.unavailable());
  scene.start();
  const fs::path project = scene.cluster.project(
      "project: p\ntrain:\n  framework: tensorflow\n  resources: {cpus: 2, mem: 512}\n"
      "  tensorflow: {distributed: {worker: 6, elastic: {min: 1}}}\n  run: 'echo at $DTRAIN_ADDRESS'\n");
  const Output train = scene.here({"train"}, project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  CHECK_MESSAGE(train.out.find("2 hosts asked of pool: job ") != std::string::npos, train.out);
  CHECK_MESSAGE(train.out.find("4 of 6 workers") != std::string::npos, train.out);
  for (int host = 1; host <= 2; ++host) {
    CHECK_MESSAGE(train.out.find("at " + Network::address(host)) != std::string::npos, train.out);
  }
}

TEST_CASE("what runs on a lent host outlives the daemon, and what is asked for is not asked for twice") {
  SlurmScene scene;
  if (!scene.unavailable().empty()) return say_skipped(scene.unavailable());
  scene.start(", idle-release: 1s");
  const Gate gate(scene.cluster.folder() / "gate");
  const fs::path project = scene.project(3, "echo begins; " + gate.wait() + "; echo goes on");
  const auto train = std::make_unique<Process>(scene.at_daemon({"train"}, project));
  train->wait_for("begins");
  const auto daemons = scene.cluster.processes("daemon run");
  REQUIRE(daemons.size() == 1);
  kill(daemons.front(), SIGKILL);
  scene.start_daemon();
  gate.open();
  const Output ended = train->wait();
  CHECK_MESSAGE(ended.code == 0, ended.all());
  CHECK_MESSAGE(ended.out.find("goes on") != std::string::npos, ended.all());
  const Output shown = scene.here({"status", "1", "--json"});
  CHECK_MESSAGE(facts(shown).at("attempt") == 1, shown.out);
  Process log({{"tail", "-n", "+1", "-F", (scene.cluster.home() / "daemon.log").string()}, {}, {}, {}});
  log.wait_for("pool-1: job 1 ended (CANCELLED)");
  CHECK(log.out().find("pool-2") == std::string::npos);
}

TEST_CASE("a runner of Slurm's that is killed is begun again, and takes over what it had") {
  SlurmScene scene;
  if (!scene.unavailable().empty()) return say_skipped(scene.unavailable());
  scene.start();
  const Gate gate(scene.cluster.folder() / "gate");
  const fs::path project = scene.project(2, "echo begins; " + gate.wait() + "; echo goes on");
  const auto train = std::make_unique<Process>(scene.at_daemon({"train"}, project));
  train->wait_for("begins");
  const auto runners = scene.cluster.processes("runner run --join - --name");
  const auto is_runner = [](pid_t pid) {
    return read_file("/proc/" + std::to_string(pid) + "/comm") == "dtrain-runner\n";
  };
  const auto runner = std::find_if(runners.begin(), runners.end(), is_runner);
  REQUIRE(runner != runners.end());
  kill(*runner, SIGKILL);
  Process log({{"tail", "-n", "+1", "-F", (scene.cluster.home() / "pools/pool-1.log").string()}, {}, {}, {}});
  log.wait_for("1@1: adopted");
  gate.open();
  const Output ended = train->wait();
  CHECK_MESSAGE(ended.code == 0, ended.all());
  CHECK_MESSAGE(ended.out.find("goes on") != std::string::npos, ended.all());
}

TEST_CASE("what Slurm refuses is said, and what is killed is not asked for any more") {
  SlurmScene scene;
  if (!scene.unavailable().empty()) return say_skipped(scene.unavailable());
  scene.start(", partition: nowhere");
  const fs::path project = scene.project(3, "true");
  const auto train = std::make_unique<Process>(scene.at_daemon({"train"}, project));
  train->wait_for("pool is asked again later: sbatch: error: ");
  const Output why = scene.here({"why", "1"});
  CHECK_MESSAGE(why.out.find("Invalid partition name") != std::string::npos, why.all());
  const Output hosts = scene.here({"hosts"});
  CHECK_MESSAGE(hosts.out.find("pool pool: 0 of 2 hosts; sbatch: error: ") != std::string::npos, hosts.out);
  REQUIRE(scene.here({"kill", "1"}).code == 0);
  CHECK(train->wait().code == 130);
}

TEST_CASE("a job that waits in Slurm is cancelled when nobody waits for it") {
  SlurmScene scene;
  if (!scene.unavailable().empty()) return say_skipped(scene.unavailable());
  scene.start();
  // Both nodes are somebody else's.
  const Output taken = scene.slurm_says({"sbatch", "--parsable", "--exclusive", "--nodes=2", "--output=/dev/null", "--job-name=other",
                                         "--wrap", "srun sleep 1000"});
  REQUIRE_MESSAGE(taken.code == 0, taken.all());
  const fs::path project = scene.project(3, "true");
  const auto train = std::make_unique<Process>(scene.at_daemon({"train"}, project));
  train->wait_for("2 hosts asked of pool: job 2");
  CHECK(scene.jobs().find("pool-1") != std::string::npos);
  REQUIRE(scene.here({"kill", "1"}).code == 0);
  CHECK(train->wait().code == 130);
  Process log({{"tail", "-n", "+1", "-F", (scene.cluster.home() / "daemon.log").string()}, {}, {}, {}});
  log.wait_for("pool-1: given back, nobody waits for it any more");
  log.wait_for("pool-1: job 2 ended (CANCELLED)");
  CHECK(scene.jobs() == "other\n");
  scene.slurm_says({"scancel", "1"});
}

TEST_CASE("a job that somebody cancels ends what ran there, and another is asked for") {
  SlurmScene scene;
  if (!scene.unavailable().empty()) return say_skipped(scene.unavailable());
  scene.start(", idle-release: 1s");
  const Gate gate(scene.cluster.folder() / "gate");
  const fs::path project = scene.project(3, "echo begins at attempt $DTRAIN_ATTEMPT; " + gate.wait(),
                                         "  restart: {limit: 1, backoff: 1s}\n");
  const auto train = std::make_unique<Process>(scene.at_daemon({"train"}, project));
  train->wait_for("begins at attempt 1");
  scene.slurm_says({"scancel", "1"});
  train->wait_for("begins at attempt 2");
  gate.open();
  const Output ended = train->wait();
  CHECK_MESSAGE(ended.code == 0, ended.all());
}
