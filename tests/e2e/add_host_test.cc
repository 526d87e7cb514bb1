// `dtrain hosts add`, by a real SSH server on a host of its own.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/skipped.h"
#include "tests/support/ssh_scene.h"

using namespace dtrain::tests;

TEST_CASE("a machine that SSH reaches becomes a host by one command, and again after its key was revoked") {
  SshScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  scene.start();
  const Output added = scene.add({"far"});
  REQUIRE_MESSAGE(added.code == 0, added.all());
  const fs::path project = scene.cluster.project("project: p\ntrain: {run: echo here at $DTRAIN_ADDRESS $DTRAIN_REPLICA}\n");
  const Output train = scene.cluster.run({"train", "--host", "far"}, project);
  CHECK_MESSAGE(train.code == 0, train.all());
  CHECK(facts(scene.cluster.run({"status", "1", "--json"}))["replicas"][0]["host"] == "far");

  const Output again = scene.add({"far"});
  CHECK(again.code == 2);
  CHECK_MESSAGE(again.err.find("dtrain hosts revoke far") != std::string::npos, again.err);
  REQUIRE(scene.cluster.run({"hosts", "revoke", "far"}).code == 0);
  const std::string before = read_file(scene.cluster.folder() / "far state/dtrain/hosts/far/pid");
  const Output anew = scene.add({"root@" + Network::address(1), "--name", "far"});
  // By its address SSH knows neither user's key nor file of known hosts: it is as if it did not answer.
  CHECK_MESSAGE(anew.code != 0, anew.all());
  CHECK(facts(scene.cluster.run({"hosts", "--json"}))["invited"].empty());
  const Output back = scene.add({"far"});
  REQUIRE_MESSAGE(back.code == 0, back.all());
  CHECK(read_file(scene.cluster.folder() / "far state/dtrain/hosts/far/pid") != before);
  CHECK(scene.cluster.run({"train", "--host", "far"}, project).code == 0);
}

TEST_CASE("a Ctrl-C in the middle takes back what was begun") {
  Cluster cluster;
  fs::create_directories(cluster.home());
  write_file(cluster.home() / "config.yml", "listen: 127.0.0.1:0\n");
  const fs::path go = cluster.folder() / "go", ssh = cluster.folder() / "ssh", keys = cluster.folder() / "keys";
  REQUIRE(mkfifo(go.c_str(), 0600) == 0);
  write_file(ssh, "echo at it >&2; read word < '" + go.string() + "'; exit 130\n");
  fs::create_directories(keys);
  cluster.env["DTRAIN_SSH"] = "sh " + ssh.string();
  cluster.env["TMPDIR"] = keys.string();
  auto adding = cluster.start({"hosts", "add", "far", "--address", "10.0.0.1"});
  adding->wait_for("at it");
  CHECK(!fs::is_empty(keys));
  adding->signal(SIGINT);
  std::ofstream(go) << "go\n";
  const Output ended = adding->wait();
  CHECK(ended.code == 1);
  CHECK_MESSAGE(ended.err.find("its key is revoked") != std::string::npos, ended.all());
  CHECK(fs::is_empty(keys));
  CHECK(facts(cluster.run({"hosts", "--json"}))["invited"].empty());
}

TEST_CASE("where dtrain does not run it is said which C library it takes, and not that of addresses") {
  Cluster cluster;
  fs::create_directories(cluster.home());
  write_file(cluster.home() / "config.yml", "listen: 127.0.0.1:0\n");
  // What came over there is taken by an old loader.
  const fs::path ssh = cluster.folder() / "ssh", programs = cluster.folder() / "programs";
  fs::create_directories(programs);
  write_file(programs / "tar", "#!/bin/sh\ncat > /dev/null\nprintf '#!/bin/sh\\necho ./dtrain: version GLIBC_2.99 not found >&2\\nexit 1\\n' > dtrain\n"
                               "chmod +x dtrain\n");
  fs::permissions(programs / "tar", fs::perms::owner_all);
  write_file(ssh, "export XDG_STATE_HOME='" + (cluster.folder() / "far state").string() + "' PATH=\"" + programs.string() +
                      ":$PATH\"\neval \"$2\"\n");
  cluster.env["DTRAIN_SSH"] = "sh " + ssh.string();
  const Output failed = cluster.run({"hosts", "add", "old", "--address", "10.0.0.1"});
  CHECK(failed.code == 1);
  CHECK_MESSAGE(failed.err.find("GLIBC_2.99 not found") != std::string::npos, failed.err);
  CHECK_MESSAGE(failed.err.find("takes glibc 2.") != std::string::npos, failed.err);
  CHECK_MESSAGE(failed.err.find("--address") == std::string::npos, failed.err);
  CHECK(facts(cluster.run({"hosts", "--json"}))["invited"].empty());
}

TEST_CASE("what SSH itself can't do is not said to be a matter of addresses") {
  Cluster cluster;
  fs::create_directories(cluster.home());
  write_file(cluster.home() / "config.yml", "listen: 127.0.0.1:0\n");
  const fs::path ssh = cluster.folder() / "ssh";
  write_file(ssh, "echo 'Permission denied (publickey).' >&2; exit 255\n");
  cluster.env["DTRAIN_SSH"] = "sh " + ssh.string();
  const Output failed = cluster.run({"hosts", "add", "me@far", "--address", "10.0.0.1"});
  CHECK(failed.code == 1);
  CHECK_MESSAGE(failed.err.find("Permission denied") != std::string::npos, failed.err);
  CHECK_MESSAGE(failed.err.find("hint: `sh " + ssh.string() + " me@far` says what SSH lacks") != std::string::npos, failed.err);
}

TEST_CASE("what can't be reached becomes no host, and its key is ended") {
  SshScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  scene.start();
  scene.cluster.env["DTRAIN_SSH"] = "false";
  const Output failed = scene.add({"me@far", "--name", "f"});
  CHECK(failed.code == 1);
  CHECK_MESSAGE(failed.err.find("me@far did not become a host; its key is revoked") != std::string::npos, failed.err);
  CHECK(facts(scene.cluster.run({"hosts", "--json"}))["invited"].empty());
  for (const std::string target : {"me@", "-oProxyCommand=touch x", "a b"}) {
    CAPTURE(target);
    CHECK(scene.add({target}).code == 2);
  }
}
