// Two machines of which one reaches the other by SSH: a real server in a network namespace.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/cluster.h"
#include "tests/support/network.h"

namespace dtrain::tests {

// The daemon on host 0 of a network and an SSH server on host 1, which "far" leads to.
struct SshScene {
  Network network{2};
  Cluster cluster;
  std::unique_ptr<Process> server;
  fs::path ssh = cluster.folder() / "ssh";

  // Nobody ends a runner that was started over there.
  ~SshScene() {
    for (const pid_t pid : cluster.processes("runner run --join")) {
      pollfd ended{static_cast<int>(syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0};
      kill(pid, SIGTERM);
      poll(&ended, 1, 20'000);
      close(ended.fd);
    }
  }
  std::string unavailable() const {
    if (!network.unavailable().empty()) return network.unavailable();
    if (::access("/usr/sbin/sshd", X_OK) != 0) return "/usr/sbin/sshd is not installed";
    std::ifstream shadow("/etc/shadow");
    for (std::string line; std::getline(shadow, line);) {
      if (line.starts_with("root:!")) return "root's account is locked, which sshd lets nobody in to";
    }
    return "";
  }
  void make_key(const std::string& name) {
    const Output made = run({.argv = {"/usr/bin/ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", (ssh / name).string()},
                             .directory = {},
                             .env = {},
                             .netns = {}});
    REQUIRE_MESSAGE(made.code == 0, made.all());
  }
  void start() {
    start_server();
    write_file(cluster.home() / "config.yml", "host: {mem: 4GiB}\nlisten: " + Network::address(0) + ":7077\n");
    start_daemon();
  }
  void start_server() {
    fs::create_directories(ssh);
    fs::create_directories("/run/sshd");
    fs::create_directories(cluster.home());
    make_key("host");
    make_key("user");
    write_file(ssh / "server", "Port 22\nHostKey " + (ssh / "host").string() + "\nAuthorizedKeysFile " +
                                   (ssh / "user.pub").string() +
                                   "\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nSetEnv "
                                   "\"XDG_STATE_HOME=" + (cluster.folder() / "far state").string() + "\" \"PATH=" BIN_DIR ":/usr/local/bin:/usr/bin:/bin\" \"DTRAIN_ON=far\"\n");   // as a home of both has it
    write_file(ssh / "client", "Host far\nHostName " + Network::address(1) + "\nUser root\nIdentityFile " +
                                   (ssh / "user").string() + "\nUserKnownHostsFile " + (ssh / "known").string() +
                                   "\nStrictHostKeyChecking accept-new\nLogLevel ERROR\n");
    cluster.env["DTRAIN_SSH"] = "ssh -F " + (ssh / "client").string();
    Command serving;
    serving.argv = {"/usr/sbin/sshd", "-D", "-e", "-f", (ssh / "server").string()};
    serving.netns = network.netns(1);
    server = std::make_unique<Process>(serving);
    server->wait_for("Server listening on 0.0.0.0");
  }
  void start_daemon() {
    Command daemon = cluster.command({"daemon", "start"});
    daemon.netns = network.netns(0);
    REQUIRE(run(daemon).code == 0);
  }
  Output add(const std::vector<std::string>& words) {
    std::vector<std::string> all = {"hosts", "add"};
    all.insert(all.end(), words.begin(), words.end());
    Command adding = cluster.command(all);
    adding.netns = network.netns(0);
    return run(adding);
  }
};

}  // namespace dtrain::tests
