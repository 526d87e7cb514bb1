// Whose turn it is where more is wanted than there is, also over a daemon that is killed.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

TEST_CASE("of one priority it is the turn of whoever has least, and status and why say so") {
  Cluster cluster;
  cluster.own_ports("cpus: 3, mem: 4GiB");
  std::ofstream(cluster.home() / "config.yml", std::ios::app) << "fair-share: [{user: anna, weight: 2}, {weight: 1}]\n";
  const auto project = [&](const std::string& name) {
    const fs::path gate = cluster.folder() / (name + "-gate");
    REQUIRE(::mkfifo(gate.c_str(), 0600) == 0);
    return cluster.project(name, {{"dtrain.yml", "project: " + name + "\ntrain:\n  resources: {cpus: 1, mem: 32}\n  run: echo here; read go < " + gate.string() + "\n"}});
  };
  const auto submit_as = [&](const std::string& user, const std::string& name) {
    cluster.env["DTRAIN_USER"] = user;
    const Output output = cluster.run({"train", "-d"}, project(name));
    REQUIRE_MESSAGE(output.code == 0, output.all());
  };
  const auto open = [&](const std::string& name) { std::ofstream(cluster.folder() / (name + "-gate")) << "go\n"; };
  submit_as("anna", "one");
  submit_as("bert", "two");
  submit_as("bert", "three");
  for (const char* id : {"1", "2", "3"}) cluster.start({"logs", "-f", id})->wait_for("here");
  submit_as("bert", "four");
  submit_as("anna", "five");
  submit_as("carl", "six");
  CHECK_MESSAGE(says(cluster.run({"why", "4"}), "2 experiments ahead of it; bert has 67 % of what there is, and who has less goes first"), cluster.run({"why", "4"}).all());
  const Output status = cluster.run({"daemon", "status"});
  CHECK_MESSAGE(says(status, "anna has 33 % of what there is, by a weight of 2"), status.all());
  CHECK_MESSAGE(says(status, "bert has 67 % of what there is\n"), status.all());
  CHECK(facts(cluster.run({"daemon", "status", "--json"}))["quotas"][0]["weight"] == 2);

  kill_all(cluster.processes("daemon run"));
  open("two");
  CHECK(cluster.run({"wait", "2"}).code == 0);
  cluster.start({"logs", "-f", "6"})->wait_for("here");   // of carl, who had nothing
  CHECK(status_of(cluster, "4")["state"] == "PENDING");
  CHECK(status_of(cluster, "5")["state"] == "PENDING");
  open("three");
  cluster.start({"logs", "-f", "4"})->wait_for("here");   // of bert, who had nothing any more
  CHECK(status_of(cluster, "5")["state"] == "PENDING");
  for (const char* name : {"one", "four", "five", "six"}) open(name);
  CHECK(cluster.run({"wait", "1", "3", "4", "5", "6"}).code == 0);
}
