// `dtrain --on MACHINE`: a project here, a daemon that SSH reaches.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "tests/support/facts.h"
#include "tests/support/skipped.h"
#include "tests/support/ssh_scene.h"

using namespace dtrain::tests;

namespace {

// No daemon here; "far" has none either until it is wanted.
struct RemoteScene : SshScene {
  RemoteScene() {
    if (unavailable().empty()) start_server();
  }
  ~RemoteScene() {
    if (unavailable().empty()) on_far({"daemon", "stop", "--kill"});
  }
  Command command_on_far(std::vector<std::string> words, const fs::path& directory = {}) {
    words.insert(words.begin(), {"--on", "far"});
    Command command = cluster.command(words, directory);
    command.netns = network.netns(0);
    command.env["DTRAIN_HOME"] = (cluster.folder() / "own").string();
    return command;
  }
  Output on_far(const std::vector<std::string>& words, const fs::path& directory = {}) {
    return run(command_on_far(words, directory));
  }
};

}  // namespace

TEST_CASE("a project here is trained by a daemon that SSH reaches, and what it wrote is brought") {
  RemoteScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  const fs::path project = scene.cluster.project("project", {{"dtrain.yml", R"(project: p
train:
  env: [WORD]
  run: echo here at $DTRAIN_ADDRESS with $(cat data) and $WORD; mkdir -p "$OUTPUT_DIR/a b"; cat data > "$OUTPUT_DIR/a b/c"; echo 1 > "$OUTPUT_DIR/-x"
)"}, {"data", "what is here"}});
  Command training = scene.command_on_far({"train"}, project);
  training.env["WORD"] = "a secret";
  const Output train = run(training);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  CHECK_MESSAGE(train.out.find("with what is here and a secret") != std::string::npos, train.out);
  CHECK_MESSAGE(train.err.find("Output: far:") != std::string::npos, train.err);
  CHECK(!fs::exists(project / "runs"));
  CHECK(!fs::exists(scene.cluster.folder() / "own/daemon.lock"));
  // The newest of this project, by where it lies here.
  CHECK(facts(scene.on_far({"why", "--json"}, project))["id"] == "1");
  const Output shown = scene.on_far({"status", "1"});
  CHECK_MESSAGE(shown.out.find(":" + project.string() + "\n") != std::string::npos, shown.out);
  // What a loop reads is the loop's.
  Command loop = scene.command_on_far({}, project);
  loop.argv = {"sh", "-c", "printf '1\\n1\\n1\\n' | while read id; do \"$0\" --on far wait $id; done", loop.argv.front()};
  CHECK(run(loop).out == "1 FINISHED\n1 FINISHED\n1 FINISHED\n");
  const Output logs = scene.on_far({"logs", "1"}, project);
  CHECK_MESSAGE(logs.out.find("with what is here") != std::string::npos, logs.all());

  const Output files = scene.on_far({"checkout", "1"}, project);
  CHECK_MESSAGE(files.out.ends_with("Next: cd checkout-1 && dtrain --on far train\n"), files.all());
  CHECK(read_file(project / "checkout-1/data") == "what is here");

  REQUIRE(scene.on_far({"output", "cp", "1"}, project).code == 0);
  CHECK(read_file(project / "output-1/a b/c") == "what is here");
  CHECK(read_file(project / "output-1/-x") == "1\n");
  const Output again = scene.on_far({"output", "cp", "1"}, project);
  CHECK(again.code == 2);
  CHECK_MESSAGE(again.err.find("-f overwrites") != std::string::npos, again.err);
  CHECK(scene.on_far({"output", "cp", "1", "-f"}, project).code == 0);
  REQUIRE(scene.on_far({"output", "cp", "1", "a b/c", "-t", "there"}, project).code == 0);
  CHECK(read_file(project / "there/c") == "what is here");
  const Output none = scene.on_far({"output", "cp", "1", "nothing"}, project);
  CHECK(none.code == 2);
  CHECK_MESSAGE(none.err.find("1 has no 'nothing'") != std::string::npos, none.err);
}

TEST_CASE("what was set for it runs again, and a failure has its exit code here") {
  RemoteScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  const fs::path project = scene.cluster.project("project: p\ntrain: {run: exit 7}\n");
  CHECK(scene.on_far({"train"}, project).code == 7);
  CHECK(scene.on_far({"wait", "1"}, project).code == 7);
  const Output again = scene.on_far({"rerun", "1", "--set", "train.run=echo again"}, project);
  CHECK_MESSAGE(again.code == 0, again.all());
  CHECK_MESSAGE(again.out.find("again") != std::string::npos, again.out);
  CHECK(!fs::exists(project / "runs"));
  const Output unknown = scene.on_far({"status", "9"}, project);
  CHECK(unknown.code == 2);
  CHECK_MESSAGE(says(unknown, "`dtrain --on far status -n 0` lists all"), unknown.all());
}

TEST_CASE("an experiment's exit code 255 is its own, and SSH's is an error") {
  RemoteScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  const fs::path project = scene.cluster.project("project: p\ntrain: {run: exit 255}\n");
  const Output failed = scene.on_far({"train"}, project);
  CHECK_MESSAGE(failed.code == 255, failed.all());
  const Output waited = scene.on_far({"wait", "1"}, project);
  CHECK(waited.code == 255);
  CHECK(waited.all() == "1 FAILED\n");
  for (const std::vector<std::string>& words : {std::vector<std::string>{"wait", "1"}, {"exec", "1", "--", "true"}, {"train"}}) {
    Command cut_off = scene.command_on_far(words, project);
    write_file(scene.cluster.folder() / "refuses", "echo 'Host key verification failed.' >&2; exit 255\n");
    cut_off.env["DTRAIN_SSH"] = "sh " + (scene.cluster.folder() / "refuses").string();
    const Output lost = run(cut_off);
    CHECK_MESSAGE(lost.code == 1, lost.all());
    CHECK_MESSAGE(says(lost, "dtrain: SSH does not reach far"), lost.all());
  }
}

TEST_CASE("who follows from afar goes on when the daemon there is another one") {
  RemoteScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  const fs::path go = scene.cluster.folder() / "go";
  REQUIRE(mkfifo(go.c_str(), 0600) == 0);
  const fs::path project = scene.cluster.project("project: p\ntrain: {run: \"echo before; cat " + go.string() + "\"}\n");
  Process train(scene.command_on_far({"train"}, project));
  train.wait_for("before");
  kill_all(scene.cluster.processes("daemon run"));
  std::ofstream(go) << "meanwhile\n";
  const Output ended = train.wait();
  CHECK_MESSAGE(ended.code == 0, ended.all());
  CHECK_MESSAGE(ended.out.find("meanwhile") != std::string::npos, ended.out);
}

TEST_CASE("who follows from afar is told that SSH is what fails, and goes on once it does not") {
  RemoteScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  const fs::path go = scene.cluster.folder() / "go", cut = scene.cluster.folder() / "cut", wrapper = scene.cluster.folder() / "wrapper";
  REQUIRE(mkfifo(go.c_str(), 0600) == 0);
  const fs::path project = scene.cluster.project("project: p\ntrain: {run: \"echo before; cat " + go.string() + "\"}\n");
  Command training = scene.command_on_far({"train"}, project);
  write_file(wrapper, "[ -e " + cut.string() + " ] && exit 255\nexec " + training.env["DTRAIN_SSH"] + " \"$@\"\n");
  training.env["DTRAIN_SSH"] = "sh " + wrapper.string();
  Process train(training);
  train.wait_for("before");
  write_file(cut, "");
  const auto dials = scene.cluster.processes("dtrain dial");
  REQUIRE(!dials.empty());
  for (const pid_t pid : dials) kill(pid, SIGKILL);
  train.wait_for("dtrain: the daemon is away (SSH does not reach far); 1 is not affected, connecting again\n");
  fs::remove(cut);
  std::ofstream(go) << "meanwhile\n";
  const Output ended = train.wait();
  CHECK_MESSAGE(ended.code == 0, ended.all());
  CHECK_MESSAGE(ended.out.find("meanwhile") != std::string::npos, ended.out);
}

TEST_CASE("a port here leads to a replica over there") {
  RemoteScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  const fs::path project = scene.cluster.project("project", {{"dtrain.yml", "project: p\ntrain: {python: /usr/bin/python3, run: exec python3 server.py}\n"},
                                                             {"server.py", read_file(SOURCE_DIR "/tests/e2e/port_server.py")}});
  Process train(scene.command_on_far({"train"}, project));
  train.wait_for("listens on ");
  train.wait_for(".\n");
  const std::string& printed = train.out();
  const std::string there = printed.substr(printed.find("listens on ") + 11, printed.find(".\n", printed.find("listens on ")) - printed.find("listens on ") - 11);
  Process forwarding(scene.command_on_far({"port-forward", "0:" + there}, project));
  forwarding.wait_for(", port " + there + "\n");
  const std::string here = forwarding.out().substr(10, forwarding.out().find(' ') - 10);
  Command client;
  client.argv = {"/usr/bin/python3", "-c",
                 "import socket, sys\n"
                 "s = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
                 "data = bytes(range(256)) * 8000\n"
                 "s.sendall(b'echo\\n' + data); s.shutdown(socket.SHUT_WR)\n"
                 "print(s.makefile('rb').read()[65:] == data)\n",
                 here};
  client.netns = scene.network.netns(0);
  const Output same = run(client);
  CHECK_MESSAGE(same.out == "True\n", same.all());
  forwarding.signal(SIGTERM);
  CHECK(forwarding.wait().code == 0);
  CHECK(scene.on_far({"kill", "1"}, project).code == 0);
}

TEST_CASE("the address of a TensorBoard over there comes with what brings it here") {
  RemoteScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  // A python that has the package, as far as anybody sees.
  const fs::path python = scene.cluster.folder() / "bin/python";
  fs::create_directories(python.parent_path());
  write_file(python, "#!/bin/sh\ncase \"$*\" in *tensorboard*) echo TensorBoard: http://127.0.0.1:$DTRAIN_PORT/; exec sleep 1000;; esac\n"
                     "exec /usr/bin/python3 \"$@\"\n");
  fs::permissions(python, fs::perms::owner_all);
  const fs::path project = scene.cluster.project("project: p\ntrain:\n  framework: tensorflow\n  resources: {cpus: 0.1, mem: 32}\n  tensorflow: {tensorboard: true}\n  python: " +
                                                 python.string() + "\n  run: sleep 1000\n");
  REQUIRE(scene.on_far({"train", "-d"}, project).code == 0);
  const Output shown = scene.on_far({"tensorboard"}, project);
  REQUIRE_MESSAGE(shown.out.starts_with("http://127.0.0.1:"), shown.all());
  const std::string port = shown.out.substr(17, shown.out.rfind('/') - 17);
  CHECK_MESSAGE(says(shown, "To reach it from here: dtrain --on far port-forward 1.tensorboard " + port + "\n"), shown.all());
  CHECK(scene.on_far({"kill", "1"}, project).code == 0);
}

TEST_CASE("a Ctrl-C leaves what runs over there alone") {
  RemoteScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  const fs::path go = scene.cluster.folder() / "go";
  REQUIRE(mkfifo(go.c_str(), 0600) == 0);
  const fs::path project = scene.cluster.project("project: p\ntrain: {run: \"echo before; cat " + go.string() + "\"}\n");
  Process train(scene.command_on_far({"train"}, project));
  train.wait_for("before");
  const Output beside = scene.on_far({"exec", "--", "sh", "-c", "echo beside $DTRAIN_REPLICA; exit 7"}, project);
  CHECK_MESSAGE(beside.code == 7, beside.all());
  CHECK(beside.out == "beside 1.train\n");
  train.signal(SIGINT);
  const Output left = train.wait();
  CHECK_MESSAGE(left.err.find("Detached; 1 goes on. Come back: dtrain --on far logs -f 1. End it: dtrain --on far kill 1\n") !=
                    std::string::npos, left.all());
  std::ofstream(go) << "meanwhile\n";
  CHECK(scene.on_far({"wait", "1"}, project).code == 0);
}

TEST_CASE("a machine that SSH does not reach, or that has no dtrain, is said to be one") {
  RemoteScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  const fs::path project = scene.cluster.project("project: p\ntrain: {run: echo}\n");
  Command nowhere = scene.command_on_far({"train"}, project);
  nowhere.env["DTRAIN_ON"] = "";
  nowhere.argv[std::ranges::find(nowhere.argv, "far") - nowhere.argv.begin()] = "nowhere.invalid";
  const Output lost = run(nowhere);
  CHECK(lost.code == 1);
  CHECK_MESSAGE(lost.err.find("SSH does not reach nowhere.invalid") != std::string::npos, lost.err);
  Command without = scene.command_on_far({"train"}, project);
  write_file(scene.cluster.folder() / "no-dtrain", "exit 127\n");
  without.env["DTRAIN_SSH"] = "sh " + (scene.cluster.folder() / "no-dtrain").string();
  const Output none = run(without);
  CHECK_MESSAGE(none.err.find("far has no dtrain that its shell finds") != std::string::npos, none.err);
  // The same of what runs over there as a whole.
  Command whole = scene.command_on_far({"status"}, project);
  write_file(scene.cluster.folder() / "bare-shell", "for last; do :; done\nPATH=/usr/bin:/bin HOME=/nonexistent exec sh -c \"$last\"\n");
  whole.env["DTRAIN_SSH"] = "sh " + (scene.cluster.folder() / "bare-shell").string();
  const Output bare = run(whole);
  CHECK(bare.code == 127);
  CHECK_MESSAGE(bare.err.starts_with("dtrain: there is none over there"), bare.err);
  const Output option = scene.cluster.run({"--on", "-oProxyCommand=x", "status"});
  CHECK(option.code == 2);
  CHECK_MESSAGE(option.err.find("is nothing that SSH reaches") != std::string::npos, option.err);
}
