// People with keys of their own, who are elsewhere: in a network namespace that knows nothing of the daemon's socket.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/network.h"
#include "tests/support/skipped.h"

using namespace dtrain::tests;

namespace {

// The daemon on host 0; anna, bert and the boss are on host 1.
struct People {
  Network network{2};
  Cluster cluster;
  fs::path keys = cluster.folder() / "their keys";

  explicit People(const std::string& more = "") {
    if (!network.unavailable().empty()) return;
    fs::create_directories(cluster.home());
    fs::create_directories(keys);
    write_file(cluster.home() / "config.yml", "host: {cpus: 8, mem: 4GiB}\nlisten: " + Network::address(0) + ":7077\n" + more);
    Command daemon = cluster.command({"daemon", "start"});
    daemon.netns = network.netns(0);
    const Output started = run(daemon);
    REQUIRE_MESSAGE(started.code == 0, started.all());
    for (const std::string name : {"anna", "bert"}) REQUIRE(cluster.run({"users", "invite", name}, keys).code == 0);
    REQUIRE(cluster.run({"users", "invite", "boss", "--admin"}, keys).code == 0);
  }
  Command command(const std::string& who, std::vector<std::string> words, const fs::path& directory = {}) {
    words.insert(words.begin(), {"--on", (keys / (who + ".key")).string()});
    Command command = cluster.command(words, directory);
    command.netns = network.netns(1);
    command.env["DTRAIN_HOME"] = (cluster.folder() / ("home of " + who)).string();
    command.env["DTRAIN_USER"] = "root";   // as anybody may say
    return command;
  }
  Output as(const std::string& who, const std::vector<std::string>& words, const fs::path& directory = {}) {
    return run(command(who, words, directory));
  }
  // An experiment that runs until `gate` is written to.
  fs::path gate() {
    const fs::path path = cluster.folder() / "gate";
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    return path;
  }
};

}  // namespace

TEST_CASE("who has a key trains from elsewhere in their own name, and what was written comes over the same connection") {
  People people;
  if (!people.network.unavailable().empty()) return say_skipped(people.network.unavailable());
  CHECK((fs::status(people.keys / "anna.key").permissions() & fs::perms::all) == (fs::perms::owner_read | fs::perms::owner_write));
  const fs::path events = fs::path(TESTDATA) / "events" / "tensorflow2";
  const fs::path project = people.cluster.project("project", {{"dtrain.yml", R"(project: p
train:
  env: [WORD]
  run: >-
    echo $(cat data) and $WORD; mkdir -p "$OUTPUT_DIR/a b/empty"; cp data "$OUTPUT_DIR/a b/c"; chmod 640 "$OUTPUT_DIR/a b/c";
    ln -s c "$OUTPUT_DIR/a b/link"; ln -s /etc/hostname "$OUTPUT_DIR/out"; head -c 3000000 /dev/zero > "$OUTPUT_DIR/zeros"; cp -r ')" + events.string() + R"('/. "$OUTPUT_DIR"
)"}, {"data", "what is here"}});
  Command training = people.command("anna", {"train"}, project);
  training.env["WORD"] = "a secret";
  const Output train = run(training);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  CHECK_MESSAGE(train.out.find("what is here and a secret") != std::string::npos, train.out);
  CHECK_MESSAGE(train.err.find("Output: " + Network::address(0) + ":") != std::string::npos, train.err);
  CHECK(!fs::exists(project / "runs"));
  CHECK(!fs::exists(people.cluster.folder() / "home of anna/daemon.lock"));
  CHECK(facts(people.as("anna", {"status", "1", "--json"}))["user"] == "anna");
  // The newest of hers in this project; bert has none there, nor elsewhere.
  CHECK(facts(people.as("anna", {"why", "--json"}, project))["id"] == "1");
  CHECK(people.as("bert", {"why"}, project).code == 2);
  CHECK(facts(people.as("bert", {"why", "1", "--json"}, project))["state"] == "FINISHED");

  // What TensorBoard's files hold is a metric here as there.
  const auto metrics = facts(people.cluster.run({"status", "1", "--json"}))["metrics"];
  REQUIRE(metrics.size() > 0);
  CHECK(facts(people.as("anna", {"status", "1", "--json"}))["metrics"] == metrics);

  const Output listed = people.as("anna", {"output", "ls", "1"});
  CHECK_MESSAGE(listed.out.find("a b/c\n") != std::string::npos, listed.all());
  CHECK_MESSAGE(says(listed, "      link  a b/link -> c\n"), listed.all());
  CHECK_MESSAGE(says(listed, "left out: 'out' is a link that leads out"), listed.all());
  const Output here = people.cluster.run({"output", "ls", "1"});
  CHECK_MESSAGE(says(here, "      link  a b/link -> c\n"), here.all());
  CHECK_MESSAGE(here.out.find("out -> ") != std::string::npos, here.all());
  const Output all = people.as("anna", {"output", "cp", "1"}, project);
  REQUIRE_MESSAGE(all.code == 0, all.all());
  CHECK_MESSAGE(says(all, "left out: 'out' is a link that leads out"), all.all());
  const fs::path copied = project / "output-1";
  CHECK(read_file(copied / "a b/c") == "what is here");
  CHECK((fs::status(copied / "a b/c").permissions() & fs::perms::all) == static_cast<fs::perms>(0640));
  CHECK(fs::read_symlink(copied / "a b/link") == "c");
  CHECK(fs::is_directory(copied / "a b/empty"));
  CHECK(read_file(copied / "zeros") == std::string(3'000'000, '\0'));
  const Output again = people.as("anna", {"output", "cp", "1", "zeros", "-t", copied.string()}, project);
  CHECK(again.code == 2);
  CHECK_MESSAGE(says(again, "-f overwrites"), again.all());
  write_file(copied / "zeros", "mine");
  CHECK(people.as("anna", {"output", "cp", "1", "zeros", "-f", "-t", copied.string()}, project).code == 0);
  CHECK(fs::file_size(copied / "zeros") == 3'000'000);
  CHECK(says(people.as("anna", {"output", "cp", "1", "../1"}, project), "is not inside the output"));
  CHECK(says(people.as("anna", {"output", "cp", "1", "none"}, project), "1 has no 'none' in its output"));
  CHECK(people.as("anna", {"checkout", "1"}, project).code == 0);
  CHECK(read_file(project / "checkout-1/data") == "what is here");
}

TEST_CASE("what is another's is seen, and ended or changed by its owner and by admins alone") {
  People people("quotas: [{user: anna, cpus: 1}]\n");
  if (!people.network.unavailable().empty()) return say_skipped(people.network.unavailable());
  const fs::path project = people.cluster.project("project: p\ntrain:\n  resources: {cpus: 1, mem: 32}\n  run: echo begun; read go < " +
                                                  people.gate().string() + "\n");
  REQUIRE(people.as("anna", {"train", "-d"}, project).code == 0);
  Process(people.command("bert", {"logs", "-f", "1"})).wait_for("begun");
  CHECK(facts(people.as("bert", {"status", "--json"}))["experiments"].size() == 1);
  const std::vector<std::vector<std::string>> refused = {
      {"kill", "1"}, {"kill", "1", "--force"}, {"suspend", "1"}, {"resume", "1"}, {"exec", "1", "--", "true"},
      {"port-forward", "1", "8080"}, {"prune", "1"}};
  for (const auto& words : refused) {
    const Output output = people.as("bert", words);
    CAPTURE(words[0]);
    CHECK_MESSAGE(output.code == 2, output.all());
    CHECK_MESSAGE(says(output, "it is anna's, and this key is bert's"), output.all());
  }
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"prune", "--environments"}, {"prune", "--cache"}, {"hosts", "invite", "h"}, {"hosts", "revoke", "h"}, {"hosts", "drain", "h"},
           {"users", "invite", "h"}, {"users", "revoke", "anna"}}) {
    const Output output = people.as("anna", words, people.cluster.folder());
    CAPTURE(words[0]);
    CHECK_MESSAGE(output.code == 2, output.all());
    CHECK_MESSAGE(says(output, "is for admins, and anna's key is no admin's"), output.all());
  }
  CHECK(says(people.as("boss", {"daemon", "stop"}), "not by a key"));
  // By whatever name she calls herself, it is her quota that counts.
  REQUIRE(people.as("anna", {"train", "-d"}, project).code == 0);
  CHECK(says(people.as("anna", {"why", "2"}), "needs 1 cpu, and anna, who may have 1 at once, has 1"));
  CHECK(says(people.as("anna", {"train", "--dry-run"}, project), "anna, who may have 1 at once"));
  CHECK(says(people.as("anna", {"exec", "1", "--", "echo", "inside"}), "inside"));
  // Of one project that both have by the same path each means their own.
  REQUIRE(people.as("bert", {"train", "-d"}, project).code == 0);
  const Output hers = people.as("anna", {"kill"}, project);
  CHECK_MESSAGE(says(hers, "2 is"), hers.all());
  CHECK(says(people.as("bert", {"kill"}, project), "3 is"));
  CHECK(people.as("bert", {"wait", "3"}).code == 130);
  CHECK(people.as("boss", {"prune", "2", "3", "--dry-run"}).code == 0);   // waits until both are closed
  CHECK(facts(people.as("anna", {"prune", "--older-than", "1ms", "--dry-run", "--json"}))["experiments"] == std::vector{2});
  CHECK(people.as("bert", {"prune", "--older-than", "1ms", "--yes"}).code == 0);
  CHECK(says(people.as("bert", {"status", "3"}), "no experiment 3"));
  CHECK(people.as("bert", {"status", "2"}).code == 0);
  CHECK(says(people.as("bert", {"kill"}, project), "there is nothing to kill"));
  CHECK(people.as("boss", {"kill", "1"}).code == 0);
  CHECK(people.as("anna", {"wait", "1"}).code == 130);
  CHECK(says(people.as("anna", {"why", "1"}), "killed by boss"));
  CHECK(!says(people.as("anna", {"why", "2"}), "killed by"));
  CHECK(people.as("boss", {"users", "invite", "carl"}, people.keys).code == 0);
  CHECK(facts(people.as("carl", {"users", "--json"}))["you"] == "carl");
}

TEST_CASE("everybody with a key reaches a TensorBoard, where it listens and nowhere else") {
  People people;
  if (!people.network.unavailable().empty()) return say_skipped(people.network.unavailable());
  // A module of the package's name that serves as it does: what is asked is who gets there.
  const fs::path project = people.cluster.project("project", {{"dtrain.yml", R"(project: p
train:
  framework: tensorflow
  python: /usr/bin/python3
  resources: {cpus: 0.1, mem: 64}
  tensorflow: {tensorboard: true}
  run: read go < )" + people.gate().string() + "\n"},
      {"tensorboard/__init__.py", ""}, {"tensorboard/program.py", R"(import http.server, threading
class TensorBoard:
    def configure(self, argv):
        self.place = (argv[argv.index("--host") + 1], int(argv[argv.index("--port") + 1]))
    def launch(self):
        server = http.server.HTTPServer(self.place, http.server.SimpleHTTPRequestHandler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return "http://%s:%d/" % self.place
)"}});
  REQUIRE(people.as("anna", {"train", "-d"}, project).code == 0);
  Process said(people.command("bert", {"logs", "--raw", "-f", "1.tensorboard"}));
  said.wait_for("/\n");
  const size_t colon = said.out().rfind(':');
  const std::string port = std::to_string(std::stoi(said.out().substr(colon + 1)));
  Process forwarding(people.command("bert", {"port-forward", "1.tensorboard", "0:" + port}));
  forwarding.wait_for(", port " + port + "\n");
  Command asking;
  asking.argv = {"/usr/bin/python3", "-c",
                 "import sys, urllib.request; print(urllib.request.urlopen('http://127.0.0.1:' + sys.argv[1] + '/dtrain.yml').read().decode())",
                 std::to_string(std::stoi(forwarding.out().substr(10)))};
  asking.netns = people.network.netns(1);
  const Output served = run(asking);
  CHECK_MESSAGE(served.out.find("tensorboard: true") != std::string::npos, served.all());
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"port-forward", "1.train", port}, {"exec", "1.tensorboard", "--", "true"}}) {
    const Output refused = people.as("bert", words);
    CAPTURE(words[1] + " " + words[2]);
    CHECK(refused.code == 2);
    CHECK_MESSAGE(says(refused, "it is anna's, and this key is bert's"), refused.all());
  }
  const std::string other = std::to_string(std::stoi(port) + 1);
  Process astray(people.command("bert", {"port-forward", "1.tensorboard", "0:" + other}));
  astray.wait_for(", port " + other + "\n");
  asking.argv.back() = std::to_string(std::stoi(astray.out().substr(10)));
  CHECK(run(asking).code != 0);
  astray.wait_for("it is anna's, and this key is bert's");
}

TEST_CASE("a key that is revoked ends what is open by it, and what its owner runs goes on") {
  People people;
  if (!people.network.unavailable().empty()) return say_skipped(people.network.unavailable());
  const fs::path gate = people.gate();
  const fs::path project = people.cluster.project("project: p\ntrain: {run: \"echo begun; read go < " + gate.string() + "\"}\n");
  Process train(people.command("anna", {"train"}, project));
  train.wait_for("begun");
  Process beside(people.command("anna", {"exec", "1", "--", "sh", "-c", "echo in; sleep 1000"}));
  beside.wait_for("in");
  const Output revoked = people.cluster.run({"users", "revoke", "anna"});
  CHECK_MESSAGE(says(revoked, "There goes on what is theirs: 1"), revoked.all());
  const Output ended = train.wait();
  CHECK(ended.code != 0);
  CHECK_MESSAGE(says(ended, "the key of 'anna' was revoked"), ended.all());
  CHECK(beside.wait().code != 0);
  CHECK(people.as("anna", {"status"}).code == 2);
  CHECK(status_of(people.cluster, "1")["state"] == "RUNNING");
  CHECK(people.cluster.run({"users", "revoke", "bert"}).code == 0);
  // Another key of that name is as good as the first was.
  fs::remove(people.keys / "anna.key");
  REQUIRE(people.cluster.run({"users", "invite", "anna"}, people.keys).code == 0);
  std::ofstream(gate) << "go\n";
  CHECK(people.as("anna", {"wait", "1"}).code == 0);
}

TEST_CASE("who follows by a key goes on when the daemon is another one, and when the network was away") {
  People people;
  if (!people.network.unavailable().empty()) return say_skipped(people.network.unavailable());
  const fs::path gate = people.gate();
  const fs::path project = people.cluster.project("project: p\ntrain: {run: \"echo before; cat " + gate.string() + "\"}\n");
  Process train(people.command("anna", {"train"}, project));
  train.wait_for("before");
  kill_all(people.cluster.processes("daemon run"));
  train.wait_for("the daemon is away");
  std::ofstream(gate) << "meanwhile\n";
  const Output ended = train.wait();
  CHECK_MESSAGE(ended.code == 0, ended.all());
  CHECK_MESSAGE(ended.out.find("meanwhile") != std::string::npos, ended.out);

  people.network.cut(0);
  const Output away = people.as("anna", {"status"});
  people.network.join(0);
  CHECK(away.code == 1);
  CHECK_MESSAGE(says(away, "no daemon can be reached at " + Network::address(0) + ":7077"), away.all());
  CHECK(people.as("anna", {"status"}).code == 0);
}

TEST_CASE("a key that is another's file, a host's, or of another daemon, is refused and said to be so") {
  People people;
  if (!people.network.unavailable().empty()) return say_skipped(people.network.unavailable());
  CHECK(says(people.as("none", {"status"}), "there is no key"));
  fs::permissions(people.keys / "bert.key", fs::perms::group_read, fs::perm_options::add);
  CHECK(says(people.as("bert", {"status"}), "can be read by others"));
  REQUIRE(people.cluster.run({"hosts", "invite", "far"}, people.keys).code == 0);
  CHECK(says(people.as("far", {"status"}), "is a host's key"));
  const Output joining = people.cluster.run({"runner", "run", "--join", (people.keys / "anna.key").string(), "--home",
                                             (people.cluster.folder() / "far").string()});
  CHECK(joining.code == 2);
  CHECK_MESSAGE(says(joining, "is a person's key, and no host joins by it"), joining.all());
  // The daemon has lost its keys, and made others.
  kill_all(people.cluster.processes("daemon run"));
  fs::remove_all(people.cluster.home() / "keys");
  Command daemon = people.cluster.command({"daemon", "start"});
  daemon.netns = people.network.netns(0);
  REQUIRE(run(daemon).code == 0);
  const Output lost = people.as("anna", {"status"});
  CHECK(lost.code == 2);
  CHECK_MESSAGE(says(lost, "is not the daemon of this key"), lost.all());
}

TEST_CASE("a range of who has a key is of what is theirs") {
  People people;
  if (!people.network.unavailable().empty()) return say_skipped(people.network.unavailable());
  const fs::path project = people.cluster.project("project: p\ntrain: {resources: {cpus: 0.1, mem: 32}, run: sleep 1000}\n");
  for (const char* who : {"anna", "bert", "anna"}) REQUIRE(people.as(who, {"train", "-d"}, project).code == 0);
  CHECK(people.as("anna", {"kill", "2"}).code == 2);
  const Output killed = people.as("anna", {"kill", "1-9", "--force"});
  CHECK_MESSAGE(killed.code == 0, killed.all());
  CHECK(people.as("anna", {"wait", "1", "3"}).out == "1 KILLED\n3 KILLED\n");
  CHECK(facts(people.as("bert", {"status", "2", "--json"}))["state"] != "KILLED");
  CHECK(says(people.as("bert", {"suspend", "3-9"}), "there is nothing from 3 to 9"));
}
