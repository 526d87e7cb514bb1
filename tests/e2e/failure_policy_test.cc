// What failures mean: by what was printed, by their code, or since nothing is printed any more.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

std::string with_policy(const std::string& policy, const std::string& run) {
  return "project: p\ntrain:\n  resources: {cpus: 1, mem: 32}\n  failure-policy:\n" + policy + "  run: |\n" + run;
}

}  // namespace

TEST_CASE("a gang leaves the host that one of its replicas named by what it printed at last, though another failed first") {
  Cluster cluster;
  cluster.own_ports("cpus: 1, mem: 4GiB, address: 192.0.2.1");
  const std::string socket = facts(cluster.run({"daemon", "start", "--json"}))["socket"];
  std::vector<std::unique_ptr<Process>> runners;
  for (const std::string name : {"2", "3"}) {
    runners.push_back(cluster.start({"runner", "run", "--join", "unix:" + socket, "--home", (cluster.folder() / name).string(), "--name",
                                     "n" + name, "--cpus", "1", "--address", "192.0.2." + name}));
    runners.back()->wait_for("joined the daemon");
  }
  // The worker's device breaks. The master sees that the other end is gone, and fails before the worker has said why.
  const fs::path failed = cluster.folder() / "failed";
  REQUIRE(::mkfifo(failed.c_str(), 0600) == 0);
  // It waits without a child: a shell that has just forked one may lose a TERM that comes for that.
  const fs::path nothing = cluster.folder() / "nothing";
  REQUIRE(::mkfifo(nothing.c_str(), 0600) == 0);
  const fs::path project = cluster.project(
      "project: p\ntrain:\n  framework: pytorch\n  resources: {cpus: 1, mem: 32}\n  stop-grace: 1h\n  pytorch: {distributed: {worker: 2}}\n  restart: {limit: 1, backoff: 0s}\n"
      "  failure-policy: [{printed: 'uncorrectable (ECC|NVLink) error', action: exclude-host}, {action: fail}]\n  run: |\n"
      "    [ $DTRAIN_ATTEMPT = 1 ] || exit 0\n"
      "    if [ $RANK = 0 ]; then read go < " + failed.string() + "; echo connection reset; exit 7; fi\n"
      "    trap 'echo RuntimeError: uncorrectable ECC error; exit 1' TERM\n"
      "    echo go > " + failed.string() + "\n    while :; do read line < " + nothing.string() + "; done\n");
  const Output output = cluster.run({"train"}, project);
  CHECK_MESSAGE(output.code == 0, output.all());
  const Json status = status_of(cluster, "1");
  CHECK(status["attempt"] == 2);
  const std::string reason = "restart 1 of 1 after 1.master: exit code 7; 1.worker.1 printed 'RuntimeError: uncorrectable ECC error'; other hosts than ";
  const size_t at = output.out.find(reason);
  REQUIRE_MESSAGE(at != std::string::npos, output.all());
  const size_t name = at + reason.size();
  const std::string broken = output.out.substr(name, output.out.find(' ', name) - name);
  for (const Json& replica : status["replicas"]) CHECK_MESSAGE(replica["host"] != broken, replica.dump());
}

TEST_CASE("who prints what ends it at once has failed, whatever it makes of TERM, and isn't begun again") {
  Cluster cluster;
  cluster.own_ports("cpus: 1, mem: 4GiB");
  const fs::path project = cluster.project(with_policy("    - {printed: 'loss=nan', at-once: true, action: fail}\n    - {exit-code: 3, action: restart}\n",
                                                "    trap 'echo saved; exit 0' TERM\n    [ $DTRAIN_ATTEMPT = 2 ] || exit 3\n"
                                                "    echo loss=0.5; echo step 7 loss=nan\n    while :; do sleep 1000 & wait; done\n"));
  const Output output = cluster.run({"train", "--set", "train.restart.backoff=0s"}, project);
  CHECK(output.code == 1);
  CHECK(cluster.log_of("1.train") == "loss=0.5\nstep 7 loss=nan\nsaved\n");
  const Json status = status_of(cluster, "1");
  CHECK(status["state"] == "FAILED");
  CHECK(status["attempt"] == 2);
  CHECK_MESSAGE(status["reason"] == "1.train: ended for having printed 'step 7 loss=nan'; exit code 0", status["reason"].dump());
}

TEST_CASE("a rule knows of a line whose keeper was killed") {
  Cluster cluster;
  cluster.own_ports("cpus: 1, mem: 4GiB");
  const fs::path project = cluster.project(with_policy("    - {printed: 'ECC error', action: fail}\n    - {action: restart}\n", "    echo ECC error; exec sleep 1000\n"));
  REQUIRE(cluster.run({"train", "-d"}, project).code == 0);
  cluster.start({"logs", "-f", "1"})->wait_for("ECC error");
  kill_all(cluster.processes("keeper "));
  CHECK(cluster.run({"wait", "1"}).code == 137);
  const Json status = status_of(cluster, "1");
  CHECK(status["attempt"] == 1);
  CHECK_MESSAGE(status["reason"].get<std::string>().find("printed 'ECC error'") != std::string::npos, status["reason"].dump());
}

TEST_CASE("silence ends a gang and begins it again, up to its restarts, and leaves alone who may be silent for longer") {
  Cluster cluster;
  cluster.own_ports("cpus: 2, mem: 4GiB");
  std::ofstream(cluster.home() / "config.yml", std::ios::app) << "runner-timeout: 2s\n";   // a host's word is waited for
  const fs::path gate = cluster.folder() / "gate";
  REQUIRE(::mkfifo(gate.c_str(), 0600) == 0);
  const fs::path talks = cluster.project("talks", {{"dtrain.yml", with_policy("    - {silent-for: 1h, action: fail}\n", "    echo talks; read go < " + gate.string() + "\n")}});
  REQUIRE(cluster.run({"train", "-d"}, talks).code == 0);
  const fs::path project = cluster.project(with_policy("    - {silent-for: 1s, action: restart}\n", "    echo attempt $DTRAIN_ATTEMPT; exec sleep 1000\n"));
  const Output output = cluster.run({"train", "--set", "train.restart={limit: 1, backoff: 0s}"}, project);
  CHECK(output.code == 1);
  const Json status = status_of(cluster, "2");
  CHECK(status["attempt"] == 2);
  CHECK_MESSAGE(status["reason"] == "nothing was printed for 1s; its one restart is used", status["reason"].dump());
  std::ofstream(gate) << "go\n";
  CHECK(cluster.run({"wait", "1"}).code == 0);
}
