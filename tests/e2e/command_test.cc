// Commands beside train, as a person strings them together.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

TEST_CASE("a program gets the shell's limits on open files and file sizes, not our own processes'") {
  rlimit files{}, size{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
  REQUIRE(getrlimit(RLIMIT_FSIZE, &size) == 0);
  rlimit odd_files = files, odd_size = size;
  odd_files.rlim_cur = 777;
  odd_size.rlim_cur = 40 << 10;
  REQUIRE(setrlimit(RLIMIT_NOFILE, &odd_files) == 0);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &odd_size) == 0);
  {
    Cluster cluster;
    const Output output = cluster.run({"train"}, cluster.project(R"(
project: p
train:
  run:
    - head -c 100000 /dev/zero | tr '\0' x
    - echo; prlimit --output RESOURCE,SOFT --noheadings --raw --nofile --fsize
)"));
    CHECK_MESSAGE(output.code == 0, output.all());
    CHECK_MESSAGE(says(output, "NOFILE 777\n"), output.all());
    CHECK_MESSAGE(says(output, "FSIZE 40960\n"), output.all());
    CHECK_MESSAGE(says(cluster.run({"daemon", "status"}), "running"), read_file(cluster.home() / "daemon.log"));
  }
  REQUIRE(setrlimit(RLIMIT_NOFILE, &files) == 0);
  REQUIRE(setrlimit(RLIMIT_FSIZE, &size) == 0);
}

TEST_CASE("JAX's processes are told where the first one is, and which they are") {
  Cluster cluster;
  const Output output = cluster.run({"train", "--framework", "jax", "--workers", "2", "--cpus", "0.1", "--mem", "32MiB", "--",
                                     "echo $PROCESS_ID of $JAX_NUM_PROCESSES, $([ $JAX_COORDINATOR_ADDRESS = $COORDINATOR_ADDRESS:$COORDINATOR_PORT ] && echo one place)"},
                                    cluster.project("jax", {{"x", ""}}));
  CHECK_MESSAGE(output.code == 0, output.all());
  CHECK_MESSAGE(says(output, "0 of 2, one place\n"), output.all());
  CHECK_MESSAGE(says(output, "1 of 2, one place\n"), output.all());
}

TEST_CASE("without a file: roles and resources as options, and --save writes the file down") {
  Cluster cluster;
  fs::path project = cluster.project("plain", {{"go.sh", "echo $DTRAIN_REPLICA is there\n"}});
  Output train = cluster.run({"train", "--workers", "2", "--cpus", "0.1", "--mem", "32MiB",
                              "--framework", "tensorflow", "--save", "--", "sh", "go.sh"},
                             project);
  CHECK_MESSAGE(train.code == 0, train.all());
  CHECK(says(train, "1.master is there"));
  CHECK(says(train, "1.worker.1 is there"));
  CHECK(cluster.run({"check"}, project).code == 0);
  CHECK(train.err.find("is not read") == std::string::npos);
  Output again = cluster.run({"train"}, project);
  CHECK_MESSAGE(says(again, "2.worker.1 is there"), again.all());
  Output beside = cluster.run({"train", "--dry-run", "--", "true"}, project);
  CHECK(beside.err == "Warning: dtrain.yml is not read, for a command is given\n");
}

TEST_CASE("a dtrain.yml that no disk takes is not left there in part") {
  Cluster cluster;
  const fs::path project = cluster.project("plain", {{"go.sh", ""}});
  for (const char* words : {"train --save -- sh go.sh", "init"}) {
    Command shell = cluster.command({}, project);
    shell.argv = {"sh", "-c", std::string("trap '' XFSZ; ulimit -f 0; exec $0 ") + words,
                  shell.argv.front()};
    const Output full = run(shell);
    CHECK_MESSAGE(full.err.starts_with("dtrain: cannot write "), full.err);
    CHECK(!fs::exists(project / "dtrain.yml"));
  }
}

TEST_CASE("of two DTRAIN_HOMEs the links in runs/ of the first stay, while they lead anywhere") {
  Cluster first, second;
  const fs::path project = first.project("p", {{"dtrain.yml", "project: p\ntrain: {run: \"true\"}\n"}});
  CHECK(first.run({"train"}, project).code == 0);
  const Output train = second.run({"train"}, project);
  CHECK(train.code == 0);
  CHECK_MESSAGE(train.err.find("runs/1 is a link to " + (first.home() / "outputs/1").string() + " already; the output is in " +
                               (second.home() / "outputs/1").string()) != std::string::npos,
                train.err);
  CHECK(fs::read_symlink(project / "runs/1") == first.home() / "outputs/1");
  fs::rename(first.home() / "outputs/1", first.home() / "outputs/gone");
  Cluster third;
  CHECK(third.run({"train"}, project).code == 0);
  CHECK(fs::read_symlink(project / "runs/1") == third.home() / "outputs/1");
}

TEST_CASE("what is in runs/ and no link of ours stays") {
  Cluster cluster;
  const fs::path project = cluster.project("p", {{"dtrain.yml", "project: p\ntrain: {run: \"true\"}\n"},
                                                 {"runs/1", "mine"},
                                                 {"runs/2/mine", ""}});
  for (const char* const number : {"1", "2"}) {
    const Output train = cluster.run({"train"}, project);
    CHECK(train.code == 0);
    CHECK_MESSAGE(train.err.find(fmt::format("runs/{} is a {} of yours", number, *number == '1' ? "file" : "folder")) !=
                      std::string::npos,
                  train.err);
    CHECK_MESSAGE((train.err.starts_with("Warning: ") || train.err.find("\nWarning: ") != std::string::npos), train.err);
    CHECK_MESSAGE(train.err.find("dtrain: ") == std::string::npos, train.err);
  }
  CHECK(read_file(project / "runs/1") == "mine");
  CHECK(fs::exists(project / "runs/2/mine"));
}

TEST_CASE("a second runner of one directory is refused, and told what to do") {
  Cluster cluster;
  CHECK(cluster.run({"train", "--", "true"}, cluster.project("p", {{"a", ""}})).code == 0);
  const Output refused = cluster.run({"runner", "run"});
  CHECK(refused.code == 2);
  CHECK_MESSAGE(refused.err.starts_with("dtrain: a runner runs there already: "), refused.err);
  CHECK(says(refused, "hint: --home DIR gives another one a directory of its own"));
}

TEST_CASE("a DTRAIN_HOME within the project is not part of it") {
  Cluster cluster;
  write_file(cluster.folder() / "dtrain.yml", "project: p\ntrain: {run: find . -type f}\n");
  for (int run = 1; run <= 2; ++run) {
    Output train = cluster.run({"train"}, cluster.folder());
    CHECK_MESSAGE(train.code == 0, train.all());
    CHECK_MESSAGE(says(train, "./dtrain.yml"), train.all());
    CHECK_MESSAGE(!says(train, "daemon"), train.all());
  }
  Output inside = cluster.run({"train", "--", "true"}, cluster.home());
  CHECK(inside.code == 2);
  CHECK_MESSAGE(says(inside, "is a DTRAIN_HOME"), inside.all());
}

TEST_CASE("rerun submits the same snapshot with other parameters") {
  Cluster cluster;
  fs::path project = cluster.project(
      "again",
      {{"dtrain.yml",
        "project: p\ntrain:\n  parameters: {rate: 1}\n  run: cat words; echo {{ rate }}\n"},
       {"words", "as it was"}});
  CHECK(cluster.run({"train"}, project).code == 0);
  write_file(project / "words", "changed since");
  Output again = cluster.run({"rerun", "1", "-p", "rate=7"}, project);
  CHECK_MESSAGE(again.code == 0, again.all());
  CHECK(says(again, "as it was7"));
  CHECK(facts(cluster.run({"status", "2", "--json"}))["parameters"]["rate"] == "7");
}

TEST_CASE("the python that was active is named, and rerun takes it again") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain:\n  run: command -v python\n");
  const fs::path then = cluster.folder() / "then", now = cluster.folder() / "now";
  for (const fs::path& venv : {then, now}) {
    fs::create_directories(venv / "bin");
    write_file(venv / "pyvenv.cfg", "");
    fs::create_symlink("/usr/bin/env", venv / "bin/python");
  }
  cluster.env["VIRTUAL_ENV"] = then.string();
  const Output train = cluster.run({"train"}, project);
  CHECK_MESSAGE(says(train, "Note: python is that of " + then.string() + ", which is active here"), train.all());
  CHECK_MESSAGE(says(train, then.string() + "/bin/python"), train.all());
  CHECK(says(cluster.run({"status", "1"}), "that of " + then.string() + ", which was active"));
  CHECK(facts(cluster.run({"status", "1", "--json"}))["user_env"]["VIRTUAL_ENV"] == then.string());

  CHECK(!says(cluster.run({"rerun", "1"}, project), "Note: python"));
  cluster.env["VIRTUAL_ENV"] = now.string();
  const Output again = cluster.run({"rerun", "1"}, project);
  CHECK_MESSAGE(says(again, "Note: python is that of " + then.string() + ", as then; --set train.python=" + now.string()), again.all());
  CHECK_MESSAGE(says(again, then.string() + "/bin/python"), again.all());
  CHECK(says(cluster.run({"rerun", "1", "--set", "train.python=" + now.string()}, project), now.string() + "/bin/python"));
}

TEST_CASE("rerun of a member keeps a value that begins like a list") {
  Cluster cluster;
  fs::path project = cluster.project(
      "project: p\ntrain:\n  parameters: {layers: ['[64,32]', '{a: b}', '1']}\n  run: echo \"layers are $LAYERS\"\n");
  CHECK(cluster.run({"train"}, project).code == 0);
  Output list = cluster.run({"rerun", "1.1"}, project);
  CHECK_MESSAGE(says(list, "2.train | "), list.all());
  CHECK(says(list, "layers are [64,32]"));
  Output map = cluster.run({"rerun", "1.2"}, project);
  CHECK_MESSAGE(says(map, "layers are {a: b}"), map.all());
}

TEST_CASE("train --dry-run shows every place and submits nothing") {
  Cluster cluster;
  fs::path project = cluster.project(
      "project: p\ntrain:\n  framework: tensorflow\n  resources: {cpus: 0.1, mem: 32}\n"
      "  tensorflow: {distributed: {worker: 2, ps: 1}}\n  run: echo\n");
  Output plan = cluster.run({"train", "--dry-run"}, project);
  CHECK_MESSAGE(plan.code == 0, plan.all());
  for (const char* role : {"master", "worker.1", "ps.1"})
    CHECK_MESSAGE(says(plan, role), plan.all());
  CHECK(facts(cluster.run({"status", "-a", "--json"}))["experiments"].empty());
}

TEST_CASE("rerun has its turn said as train has it, and --dry-run submits nothing") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {run: echo, resources: {cpus: 0.1, mem: 32}}\n");
  REQUIRE(cluster.run({"train"}, project).code == 0);
  const Output plan = cluster.run({"rerun", "1", "--dry-run"}, project);
  CHECK_MESSAGE(plan.code == 0, plan.all());
  CHECK(says(plan, "Nothing was submitted"));
  CHECK(facts(cluster.run({"status", "-a", "--json"}))["experiments"].size() == 1);
  CHECK(cluster.run({"rerun", "1", "--priority", "101"}, project).err.find("0 to 100") != std::string::npos);
  const Output again = cluster.run({"rerun", "1", "-d", "--suspended", "--priority", "7", "--preemptible"}, project);
  REQUIRE_MESSAGE(again.code == 0, again.all());
  const Output shown = cluster.run({"status", "2"}, project);
  CHECK_MESSAGE(says(shown, "SUSPENDED"), shown.all());
  CHECK_MESSAGE(says(shown, "Priority:     7, gives its place to higher ones"), shown.all());
}

TEST_CASE("an ID may have a user before it, as RiseML's has") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {run: echo it ran, resources: {cpus: 0.1, mem: 32}}\n");
  REQUIRE(cluster.run({"train", "-l"}, project).code == 0);
  cluster.env["DTRAIN_USER"] = "anna";
  for (const char* id : {".anna.1", "anna.1", ".ben.1.train"}) CHECK(says(cluster.run({"logs", id}), "it ran"));
  CHECK(cluster.run({"wait", "anna.1"}).code == 0);
  for (const char* id : {"worker.1", "p.1"}) CHECK(cluster.run({"wait", id}).code == 2);
  CHECK(says(cluster.run({"output", "cp", "model.1"}, project), "1 has no 'model.1' in its output"));
}

TEST_CASE("logs by replica and role, the last lines, lines that match") {
  Cluster cluster;
  fs::path project = cluster.project(
      "project: p\ntrain:\n  framework: tensorflow\n  resources: {cpus: 0.1, mem: 32}\n"
      "  tensorflow: {distributed: {worker: 3}}\n"
      "  run: for i in 1 2 3; do echo $DTRAIN_REPLICA line $i; done\n"
      "  completion: all-workers\n");
  CHECK(cluster.run({"train"}, project).code == 0);
  Output one = cluster.run({"logs", "1.worker.2"}, project);
  CHECK(says(one, "1.worker.2 line 3"));
  CHECK(!says(one, "1.worker.1 line"));
  Output role = cluster.run({"logs", "1.worker"}, project);
  CHECK(says(role, "1.worker.1 line 1"));
  CHECK(says(role, "1.worker.2 line 1"));
  CHECK(!says(role, "1.master line"));
  Output last = cluster.run({"logs", "1.master", "--tail", "1"}, project);
  CHECK(says(last, "line 3"));
  CHECK(!says(last, "line 1"));
  Output all = cluster.run({"logs", "1.master", "--tail", "9"}, project);
  CHECK_MESSAGE(has_in_order(all.out, {"1.master line 1", "-->"}), all.out);
  CHECK(cluster.run({"logs", "1", "--tail", "0"}, project).out.empty());
  Output some = cluster.run({"logs", "1", "--grep", "line [12]"}, project);
  CHECK(says(some, "line 2"));
  CHECK(!says(some, "line 3"));
}

TEST_CASE("output cp takes the newest experiment's when no ID is given") {
  Cluster cluster;
  fs::path project = cluster.project(
      "project: p\ntrain:\n  run: echo weights > $OUTPUT_DIR/model; echo 1 > $OUTPUT_DIR/log\n");
  CHECK(cluster.run({"train"}, project).code == 0);
  Output all = cluster.run({"output", "cp"}, project);
  CHECK_MESSAGE(all.code == 0, all.all());
  CHECK(read_file(project / "output-1/model") == "weights\n");
  Output one = cluster.run({"output", "cp", "model"}, project);
  CHECK_MESSAGE(one.code == 0, one.all());
  CHECK(read_file(project / "model") == "weights\n");
  CHECK(cluster.run({"output", "cp", "-f", "1", "model"}, project).code == 0);
}

TEST_CASE("output cp copies nothing where one of the files is there") {
  Cluster cluster;
  const fs::path project = cluster.project(
      "project: p\ntrain:\n  run: cd $OUTPUT_DIR; mkdir a b; echo 1 > a/x; echo 2 > b/x; echo 3 > y\n");
  CHECK(cluster.run({"train"}, project).code == 0);
  write_file(project / "y", "mine\n");
  const Output refused = cluster.run({"output", "cp", "a/x", "y"}, project);
  CHECK(refused.code == 2);
  CHECK_MESSAGE(says(refused, "./y exists"), refused.all());
  CHECK(!fs::exists(project / "x"));
  CHECK(says(cluster.run({"output", "cp", "a/x", "b/x"}, project), "two of these would be ./x"));
  CHECK(!fs::exists(project / "x"));
}

TEST_CASE("output cp . takes all that is there") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain:\n  run: cd $OUTPUT_DIR; mkdir d; echo 1 > d/x\n");
  CHECK(cluster.run({"train"}, project).code == 0);
  const Output all = cluster.run({"output", "cp", ".", "-t", "here"}, project);
  CHECK_MESSAGE(all.code == 0, all.all());
  CHECK(read_file(project / "here/d/x") == "1\n");
}

TEST_CASE("output cp takes what lies in folders that may not be written to") {
  Cluster cluster;
  cluster.drop_root();
  const fs::path project = cluster.project(
      "project: p\ntrain:\n  run: cd $OUTPUT_DIR; mkdir -p d/e; echo 1 > d/e/x; chmod 555 d/e d\n");
  fs::permissions(project, fs::perms::all);
  CHECK(cluster.run({"train"}, project).code == 0);
  const Output all = cluster.run({"output", "cp"}, project);
  CHECK_MESSAGE(all.code == 0, all.all());
  CHECK(read_file(project / "output-1/d/e/x") == "1\n");
  CHECK(fs::status(project / "output-1/d").permissions() == fs::status(cluster.home() / "outputs/1/d").permissions());
  for (const fs::path& from : {project / "output-1", cluster.home() / "outputs/1"}) {
    for (const char* const locked : {"d", "d/e"}) fs::permissions(from / locked, fs::perms::owner_all);
  }
}

TEST_CASE("output ls leaves out a file whose size can't be told") {
  Cluster cluster;
  const fs::path project = cluster.project(R"(
project: p
train:
  run:
    - deep=$(for i in $(seq 15); do printf %0200d/ 0; done)
    - cd $OUTPUT_DIR; mkdir -p $deep; cd $deep; mkdir -p $deep; echo 1 > $deep/x
)");
  CHECK(cluster.run({"train"}, project).code == 0);
  const Output listed = cluster.run({"output", "ls"}, project);
  CHECK_MESSAGE(says(listed, "1 file in"), listed.all());
}

TEST_CASE("output cp takes folders and links, over what is there too, and leaves fifos out") {
  Cluster cluster;
  fs::path project = cluster.project(
      "project: p\ntrain:\n  run: cd $OUTPUT_DIR; mkdir d; echo 1 > d/a; ln -s a d/newest; mkfifo d/pipe; echo 2 > z\n");
  CHECK(cluster.run({"train"}, project).code == 0);
  Output all = cluster.run({"output", "cp"}, project);
  CHECK_MESSAGE(all.code == 0, all.all());
  CHECK(says(all, "left out: pipe (a socket, fifo or device)"));
  CHECK(read_file(project / "output-1/d/newest") == "1\n");
  CHECK(read_file(project / "output-1/z") == "2\n");
  write_file(project / "output-1/d/a", "changed here\n");
  Output again = cluster.run({"output", "cp", "-f"}, project);
  CHECK_MESSAGE(again.code == 0, again.all());
  CHECK(read_file(project / "output-1/d/newest") == "1\n");
  Output folder = cluster.run({"output", "cp", "1", "d/"}, project);
  CHECK_MESSAGE(folder.code == 0, folder.all());
  CHECK(read_file(project / "d/a") == "1\n");
}

TEST_CASE("environment: parameters, a secret from the shell, nothing of the rest") {
  Cluster cluster;
  cluster.env["API_TOKEN"] = "very-secret";
  cluster.env["UNRELATED"] = "stays-outside";
  fs::path project = cluster.project(
      "project: p\ntrain:\n  parameters: {learning-rate: 0.5}\n  env: {PLAIN: yes-it-is}\n"
      "  run: echo rate=$LEARNING_RATE token=$API_TOKEN plain=$PLAIN other=$UNRELATED "
      "$EXPERIMENT_ID\n");
  Output train = cluster.run({"train", "--env", "API_TOKEN"}, project);
  CHECK_MESSAGE(says(train, "rate=0.5 token=very-secret plain=yes-it-is other= 1\n"), train.all());
  Output shown = cluster.run({"status", "1", "--json"});
  CHECK(!says(shown, "very-secret"));
}

TEST_CASE("--env of what the file has takes its place, secret or not") {
  Cluster cluster;
  cluster.env["TOKEN"] = "of-the-shell";
  for (const char* const env : {"{TOKEN: plain}", "[TOKEN]"}) {
    const fs::path project =
        cluster.project(fmt::format("project: p\ntrain:\n  env: {}\n  run: echo token=$TOKEN\n", env));
    const Output secret = cluster.run({"train", "--env", "TOKEN"}, project);
    CHECK_MESSAGE(says(secret, "token=of-the-shell\n"), secret.all());
    const Output typed = cluster.run({"train", "--env", "TOKEN=typed"}, project);
    CHECK_MESSAGE(says(typed, "token=typed\n"), typed.all());
  }
}

TEST_CASE("bash completes commands, options, subcommands and IDs") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain: {run: echo}\n");
  CHECK(cluster.run({"train"}, project).code == 0);
  const std::string program = cluster.command({}).argv.front();
  const auto completed = [&](const std::string& words, int word) {
    Command bash = cluster.command({});
    bash.argv = {"bash", "-c",
                 "eval \"$($0 completion bash)\"; COMP_WORDS=(dtrain " + words + "); COMP_CWORD=" +
                     std::to_string(word) + "; _dtrain $0; echo \"${COMPREPLY[*]}\"",
                 program};
    return run(bash).out;
  };
  CHECK(completed("lo", 1) == "logs\n");
  CHECK(completed("logs --ta", 2) == "--tail\n");
  CHECK(completed("daemon st", 2) == "start status stop\n");
  CHECK(completed("logs ''", 2) == "1\n");
  CHECK(completed("output ls ''", 3) == "1\n");
  CHECK(completed("train ''", 2) == "\n");  // files, by bash itself
  CHECK(completed("compare --value ''", 3) == "last min max\n");
  CHECK(completed("train --time c", 3) == "clock\n");
  CHECK(completed("status --state F", 3) == "FINISHED FAILED\n");
  CHECK(completed("status --state RUNNING,ST", 3) == "RUNNING,STARTING RUNNING,STOPPING\n");
  CHECK(completed("train --framework p", 3) == "pytorch\n");
  CHECK(completed("train --after 7,", 3) == "7,1\n");
}

TEST_CASE("options that contradict each other are refused") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {run: echo}\n");
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"train", "--tied", "-d"}, {"rerun", "1", "--tied", "-d"},
        {"logs", "1", "--raw", "--json"}, {"logs", "1", "--attempt", "0"},
        {"train", "--explain-sync", "--json"}}) {
    const Output refused = cluster.run(words, project);
    CHECK_MESSAGE(refused.code == 2, words[0] << refused.all());
    CHECK_MESSAGE(refused.out.empty(), refused.out);
  }
}

TEST_CASE("why a file travels, or not, is told of any path in the project") {
  Cluster cluster;
  const fs::path project = cluster.project("told", {{"dtrain.yml", "project: p\ntrain: {run: echo}\n"},
                                                    {".gitignore", "big\n"},
                                                    {"deep/file", ""},
                                                    {"big/in/it", ""},
                                                    {"od\x1b[31md", ""}});
  const auto told = [&](const std::string& path) {
    return cluster.run({"train", "--explain-sync", path}, project).out;
  };
  CHECK(told("deep/file") == "in  deep/file\n");
  CHECK(told("deep/") == "in  deep\n");
  CHECK(told(project / "deep/../deep/file") == "in  deep/file\n");
  CHECK(told("big/in/it").starts_with("out big/in/it: "));
  CHECK(told("big/in/it").substr(14) == told("big").substr(8));
  const Output all = cluster.run({"train", "--explain-sync"}, project);
  CHECK_MESSAGE(says(all, "out big: "), all.all());
  CHECK(all.out.find('\x1b') == std::string::npos);
  CHECK(cluster.run({"train", "--explain-sync", "nosuch"}, project).code == 2);
}

TEST_CASE("status lists those of one user, or in some states") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {resources: {cpus: 0.1, mem: 32}, run: 'true'}\n");
  cluster.env["DTRAIN_USER"] = "anna";
  CHECK(cluster.run({"train"}, project).code == 0);
  CHECK(cluster.run({"train", "-d", "--suspended"}, project).code == 0);
  cluster.env["DTRAIN_USER"] = "ben";
  CHECK(cluster.run({"train", "--", "false"}, project).code == 1);
  CHECK(cluster.run({"train", "-d", "--suspended"}, project).code == 0);
  const auto listed = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"status", "--json"});
    const Json list = facts(cluster.run(options));
    std::string ids;
    for (const Json& each : list["experiments"]) ids += (ids.empty() ? "" : " ") + std::string(each["id"]);
    return ids;
  };
  CHECK(listed({}) == "2 4");
  CHECK(listed({"--user", "anna"}) == "2");
  CHECK(listed({"--user", "anna", "-a"}) == "1 2");
  CHECK(listed({"--state", "suspended"}) == "2 4");
  CHECK(listed({"--state", "FAILED,FINISHED"}) == "1 3");
  CHECK(listed({"--state", "FAILED,SUSPENDED", "--user", "ben"}) == "3 4");
  CHECK(listed({"--state", "SUSPENDED", "-n", "1"}) == "4");
  CHECK(facts(cluster.run({"status", "--state", "SUSPENDED", "-n", "1", "--json"}))["older_left_out"] == true);
  CHECK(facts(cluster.run({"status", "--state", "SUSPENDED", "--json"}))["older_left_out"] == false);
  CHECK(says(cluster.run({"status", "--state", "FAILED,FINISHED", "-n", "1"}), "dtrain status -n 0 --state FAILED,FINISHED lists all"));
  CHECK(cluster.run({"status", "--user", "carl"}).out == "No experiment of carl waits or runs. dtrain status -a --user carl looks at ended ones, too\n");
  const Output refused = cluster.run({"status", "--state", "RUNING"});
  CHECK(refused.code == 2);
  CHECK_MESSAGE(says(refused, "--state: 'RUNING' is no state of an experiment; did you mean RUNNING?"), refused.all());
  CHECK(cluster.run({"status", "1", "--user", "anna"}).code == 2);
}

TEST_CASE("help names options as they are typed") {
  Cluster cluster;
  Output help = cluster.run({"kill", "--help"});
  CHECK(help.code == 0);
  CHECK_MESSAGE(says(help, "-f, --force   "), help.all());
  CHECK(!says(help, "[]"));
  const std::string of_train = cluster.run({"train", "--help"}).out;
  for (const char* asked : {"help", "--help", "-h"}) CHECK(cluster.run({asked, "train"}).out == of_train);
}

TEST_CASE("hosts are chosen by labels and patterns, in the YAML or with --host, which goes before it") {
  Cluster cluster;
  fs::create_directories(cluster.home());
  write_file(cluster.home() / "config.yml", "host: {labels: [fast, rack=3]}\n");
  const fs::path project = cluster.project("project: p\ntrain: {hosts: [slow, \"rack=*\"], resources: {cpus: 0.1, mem: 32}, run: echo here}\n");
  const Output train = cluster.run({"train"}, project);
  CHECK_MESSAGE(train.code == 0, train.all());
  const Output hosts = cluster.run({"hosts", "--json"});
  CHECK(facts(hosts)["hosts"][0]["labels"] == Json({"fast", "rack=3"}));
  CHECK(says(cluster.run({"hosts"}), "labels fast, rack=3"));
  const Output refused = cluster.run({"train", "--host", "*,!fast"}, project);
  CHECK(refused.code == 2);
  CHECK_MESSAGE(says(refused, "no host is one of '*,!fast'"), refused.all());
  CHECK(cluster.run({"train", "--host", " slow , fast"}, project).code == 0);
  const Output nothing = cluster.run({"train", "--host", "! fast"}, project);
  CHECK(nothing.code == 2);
  CHECK_MESSAGE(says(nothing, "--host: got '! fast', expected the name of a host"), nothing.all());
  for (const char* empty : {"", ",", "fast,"}) {
    for (const std::vector<std::string>& command : {std::vector<std::string>{"train"}, {"rerun", "1"}}) {
      std::vector<std::string> words = command;
      words.insert(words.end(), {"-d", "--host", empty});
      const Output unnamed = cluster.run(words, project);
      CHECK(unnamed.code == 2);
      CHECK_MESSAGE(says(unnamed, "--host: got an empty text, expected the name of a host"), unnamed.all());
      CHECK(says(unnamed, "left out: any host"));
    }
  }
  CHECK(says(cluster.run({"rerun", "1", "--set", "train.hosts=[slow]"}, project), "no host is named 'slow'"));
  CHECK(cluster.run({"rerun", "1", "--host", "fast", "-d"}, project).code == 0);
  const fs::path saved = cluster.project("saved", {{"go.sh", "true\n"}});
  CHECK(cluster.run({"train", "--save", "--host", "fast,!slow", "--priority", "70", "--", "true"}, saved).code == 0);
  CHECK(says(Output{0, read_file(saved / "dtrain.yml"), ""}, "priority: 70\n  hosts:\n    - fast\n    - \"!slow\"\n"));
  write_file(project / "dtrain.yml", "project: p\ntrain: {hosts: slow, run: echo here}\n");
  CHECK_MESSAGE(says(cluster.run({"train"}, project), "no host is named 'slow'"), "the YAML's counts");
  CHECK(cluster.run({"train", "--host", "fast"}, project).code == 0);
}
