// Data sets that lie on the hosts: hosts that lack one are not used, and replicas see them
// read-only. Two hosts are two runners, each in a mount namespace where the same path holds
// something else.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <memory>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/skipped.h"

using namespace dtrain::tests;

namespace {

std::string why_no_mounts() {
  if (geteuid() != 0) return "mounting needs root";
  Command command{.argv = {"unshare", "-m", "true"}, .directory = {}, .env = {}, .netns = {}};
  const Output tried = run(command);
  return tried.code == 0 ? "" : "no mount namespaces here: " + tried.err;
}

// A daemon of its own; runners join under names, with or without the data.
struct DataHosts {
  Cluster cluster;
  fs::path empty = cluster.folder() / "sets";
  fs::path full = cluster.folder() / "full";
  Process daemon{cluster.command({"daemon", "run", "--no-local-runner"})};
  std::string socket;
  std::map<std::string, std::unique_ptr<Process>> runners;

  DataHosts() {
    fs::create_directories(empty);
    fs::create_directories(full / "mnist");
    write_file(full / "mnist/train", "pixels\n");
    daemon.wait_for("listening on");
    socket = facts(cluster.run({"daemon", "status", "--json"}))["socket"];
  }
  ~DataHosts() {
    while (!runners.empty()) leave(runners.begin()->first);
    daemon.signal(SIGTERM);
    CHECK(daemon.wait().code == 0);
  }
  void join(const std::string& name, bool has_data) {
    Command command = cluster.command({"runner", "run", "--join", "unix:" + socket, "--home",
                                       (cluster.folder() / name).string(), "--name", name, "--cpus",
                                       "4", "--mem", "8GiB"});
    const std::string from = (has_data ? full : empty).string();
    const std::vector<std::string> around = {"unshare",
                                             "-m",
                                             "sh",
                                             "-c",
                                             "mount --bind \"$1\" \"$2\" && shift 2 && exec \"$@\"",
                                             "sh",
                                             from,
                                             empty.string()};
    command.argv.insert(command.argv.begin(), around.begin(), around.end());
    auto& runner = runners[name];
    runner = std::make_unique<Process>(command);
    runner->wait_for("joined the daemon");
  }
  void leave(std::string name) {
    runners.at(name)->signal(SIGTERM);
    CHECK(runners.at(name)->wait().code == 0);
    runners.erase(name);
  }
  fs::path project() {
    return cluster.project(
        fmt::format("project: p\n"
                    "train:\n"
                    "  resources: {{cpus: 1, mem: 32}}\n"
                    "  data: {{mnist: {}/mnist}}\n"
                    "  restart: {{limit: 0}}\n"
                    "  run: cat $MNIST_DIR/train\n",
                    empty.string()));
  }
};

}  // namespace

TEST_CASE(
    "on a single host without the data set the experiment fails at once, and says what is where") {
  Cluster cluster;
  const fs::path project =
      cluster.project("project: p\ntrain:\n  data: {mnist: /no/such/mnist}\n  run: echo\n");
  const Output train = cluster.run({"train"}, project);
  CHECK(train.code == 1);
  CHECK_MESSAGE(says(train, "data mnist: /no/such/mnist is not there on "), train.all());
  CHECK_MESSAGE(says(train, "put it there by the same path, or name another one in dtrain.yml"),
                train.all());
  const Output why = cluster.run({"why", "1"});
  CHECK_MESSAGE(says(why, "is not there on "), why.all());
  CHECK_MESSAGE(says(why, "put it there by the same path"), why.all());
  const Json shown = facts(cluster.run({"status", "1", "--json"}));
  CHECK(shown["state"] == "FAILED");
  CHECK(shown["reason"].get<std::string>().find("is not there on ") != std::string::npos);
}

TEST_CASE("a python that is not on this host is the same") {
  Cluster cluster;
  const fs::path project =
      cluster.project("project: p\ntrain:\n  python: /no/such/python\n  run: python -V\n");
  const Output train = cluster.run({"train"}, project);
  CHECK(train.code == 1);
  CHECK_MESSAGE(says(train, "python /no/such/python is not there on "), train.all());
}

TEST_CASE("of two hosts the one with the data set is used, at no cost") {
  if (const std::string why = why_no_mounts(); !why.empty()) return say_skipped(why);
  DataHosts hosts;
  hosts.join("a-without", false);
  hosts.join("b-with", true);
  const Output train = hosts.cluster.run({"train"}, hosts.project());
  CHECK_MESSAGE(train.code == 0, train.all());
  CHECK_MESSAGE(says(train, "mnist is not there on a-without; other hosts are tried"), train.all());
  CHECK(says(train, "pixels"));
  const Json shown = facts(hosts.cluster.run({"status", "1", "--json"}));
  CHECK(shown["replicas"][0]["host"] == "b-with");

  // With neither it ends, and both are named.
  hosts.leave("b-with");
  hosts.join("b-with", false);
  const Output failed = hosts.cluster.run({"train"}, hosts.project());
  CHECK(failed.code == 1);
  CHECK_MESSAGE(says(failed, "mnist is not there on a-without, b-with; put it there"),
                failed.all());
}

TEST_CASE("while the host that may have the data set is away the experiment waits for it") {
  if (const std::string why = why_no_mounts(); !why.empty()) return say_skipped(why);
  DataHosts hosts;
  hosts.join("a-without", false);
  hosts.join("b-with", true);
  hosts.leave("b-with");
  auto train = hosts.cluster.start({"train"}, hosts.project());
  train->wait_for("other hosts are tried");
  const Output why = hosts.cluster.run({"why", "1"});
  CHECK_MESSAGE(
      says(why, "mnist is not there on a-without; waits for b-with, which is not connected"),
      why.all());
  hosts.join("b-with", true);
  const Output ended = train->wait();
  CHECK_MESSAGE(ended.code == 0, ended.all());
  CHECK(says(ended, "pixels"));

  // What it lacked is forgotten when a host joins anew: it has it now.
  hosts.leave("b-with");
  auto again = hosts.cluster.start({"train"}, hosts.project());
  again->wait_for("other hosts are tried");
  hosts.leave("a-without");
  hosts.join("a-without", true);
  CHECK(again->wait().code == 0);
}

TEST_CASE("a replica sees its data sets read-only below the mount point, and nothing else there") {
  if (const std::string why = why_no_mounts(); !why.empty()) return say_skipped(why);
  Cluster cluster;
  const fs::path point = cluster.folder() / "point";
  fs::create_directory(point);
  cluster.env["DTRAIN_DATA_MOUNT"] = point.string();
  write_file(cluster.folder() / "words.txt", "some words\n");
  fs::create_directory(cluster.folder() / "mnist");
  write_file(cluster.folder() / "mnist/train", "pixels\n");
  const fs::path project =
      cluster.project(fmt::format("project: p\n"
                                  "train:\n"
                                  "  resources: {{cpus: 0.1, mem: 32}}\n"
                                  "  data: {{mnist: {0}/mnist, my-words: {0}/words.txt}}\n"
                                  "  run:\n"
                                  "    - echo in $DATA_DIR $(ls $DATA_DIR)\n"
                                  "    - cat $MNIST_DIR/train $MY_WORDS_DIR\n"
                                  "    - (echo x > $MNIST_DIR/train) 2>&1 || true\n"
                                  "    - (echo x > $DATA_DIR/mine) 2>&1 || true\n"
                                  "    - echo result > $OUTPUT_DIR/result\n",
                                  cluster.folder().string()));
  const Output train = cluster.run({"train"}, project);
  CHECK_MESSAGE(train.code == 0, train.all());
  CHECK_MESSAGE(says(train, "in " + point.string() + " mnist my-words"), train.all());
  CHECK(says(train, "pixels"));
  CHECK(says(train, "some words"));
  const size_t first = train.out.find("Read-only file system");
  CHECK_MESSAGE(first != std::string::npos, train.all());
  CHECK(train.out.find("Read-only file system", first + 1) != std::string::npos);
  CHECK(read_file(project / "runs/1/result") == "result\n");
  CHECK(read_file(cluster.folder() / "mnist/train") == "pixels\n");
  CHECK(fs::is_empty(point));

  // A directory that is used for something else is left alone.
  write_file(point / "mine", "mine\n");
  const Output linked = cluster.run({"train"}, project);
  CHECK_MESSAGE(linked.code == 0, linked.all());
  CHECK_MESSAGE(says(linked, "/data mnist my-words"), linked.all());
  CHECK(!says(linked, "in " + point.string()));
  CHECK(read_file(point / "mine") == "mine\n");
}
