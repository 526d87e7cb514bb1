// What one user may have at once: who waits for their own holds up nobody else, also over a daemon that is killed.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

Output submit_as(Cluster& cluster, const std::string& user, const fs::path& project, std::vector<std::string> more = {}) {
  cluster.env["DTRAIN_USER"] = user;
  more.insert(more.begin(), {"train", "-d"});
  return cluster.run(more, project);
}

}  // namespace

TEST_CASE("a user's experiments wait for each other, those of others don't, and what is preemptible has no quota") {
  Cluster cluster;
  cluster.own_ports("cpus: 8, mem: 4GiB");
  std::ofstream(cluster.home() / "config.yml", std::ios::app) << "quotas: [{user: anna, cpus: 2}, {cpus: 1}]\n";
  const fs::path gate = cluster.folder() / "gate";
  REQUIRE(::mkfifo(gate.c_str(), 0600) == 0);
  const fs::path waits = cluster.project("waits", {{"dtrain.yml", "project: waits\ntrain:\n  resources: {cpus: 2, mem: 32}\n  run: echo here; read go < " + gate.string() + "\n"}});
  const fs::path ends = cluster.project("ends", {{"dtrain.yml", "project: ends\ntrain:\n  resources: {cpus: 1, mem: 32}\n  run: echo done\n"}});
  REQUIRE(submit_as(cluster, "anna", waits).code == 0);
  cluster.start({"logs", "-f", "1"})->wait_for("here");
  REQUIRE(submit_as(cluster, "anna", ends).code == 0);
  REQUIRE(submit_as(cluster, "bert", ends).code == 0);
  REQUIRE(submit_as(cluster, "anna", ends, {"--preemptible"}).code == 0);
  CHECK(cluster.run({"wait", "3", "4"}).code == 0);
  CHECK(status_of(cluster, "2")["state"] == "PENDING");
  const std::string why = "needs 1 cpu, and anna, who may have 2 at once, has 2";
  CHECK_MESSAGE(says(cluster.run({"why", "2"}), why), cluster.run({"why", "2"}).all());
  const Output plan = cluster.run({"train", "--dry-run"}, ends);   // still anna
  CHECK_MESSAGE(says(plan, why), plan.all());

  const Output refused = submit_as(cluster, "bert", ends, {"--set", "train.resources.cpus=2"});
  CHECK(refused.code == 2);
  CHECK_MESSAGE(says(refused, "needs 2 cpus, and bert may have 1 at once"), refused.all());
  CHECK_MESSAGE(says(cluster.run({"daemon", "status"}), "anna has 2 of 2 cpus"), cluster.run({"daemon", "status"}).all());
  CHECK(facts(cluster.run({"daemon", "status", "--json"}))["quotas"][0]["cpus_quota"] == 2);
  const std::string list = cluster.run({"status", "-a"}).out;
  CHECK_MESSAGE((list.find("USER") != std::string::npos && list.find("bert") != std::string::npos), list);

  kill_all(cluster.processes("daemon run"));
  REQUIRE(submit_as(cluster, "anna", ends).code == 0);
  CHECK(status_of(cluster, "5")["state"] == "PENDING");
  CHECK(says(cluster.run({"why", "2"}), why));
  std::ofstream(gate) << "go\n";
  CHECK(cluster.run({"wait", "1", "2", "5"}).code == 0);
}
