// Bad input is refused before anything is sent, with the place, what was expected and what to do.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/skipped.h"

using namespace dtrain::tests;

namespace {

struct Refusal {
  std::string yaml;
  std::vector<std::string> says;  // all of these
};

std::string alias_bomb() {
  std::string yaml = "project: bomb\nx0: &x0 [a, a, a, a, a, a, a, a, a]\n";
  for (int level = 1; level < 12; ++level) {
    std::string below = "*x" + std::to_string(level - 1);
    yaml += "x" + std::to_string(level) + ": &x" + std::to_string(level) + " [" + below;
    for (int copy = 0; copy < 8; ++copy) yaml += ", " + below;
    yaml += "]\n";
  }
  return yaml + "train: {run: echo}\n";
}

}  // namespace

TEST_CASE("dtrain.yml: every mistake with line, column and what would be right") {
  Cluster cluster;
  const Refusal refusals[] = {
      {"project: p\ntrain:\n  resources: {cpu: 2}\n  run: echo\n",
       {"dtrain.yml:3:15", "cpu", "did you mean 'cpus'?"}},
      {"project: p\ntrain:\n  framework: tensorflw\n  run: echo\n",
       {"dtrain.yml:3:14", "tensorflw", "tensorflow"}},
      {"project: p\ntrain:\n  run: echo\n  run: echo\n", {"dtrain.yml:4:3", "run"}},
      {"project: p\ntrain:\n  resources: {cpus: many}\n  run: echo\n", {"dtrain.yml:3:21", "cpus"}},
      {"project: p\ntrain: {run: echo", {"dtrain.yml:"}},
      {"project: p\ntrain:\n  run: echo {{ rate }}\n", {"rate", "-p rate="}},
      {"train:\n  run: echo\n", {"project"}},
      {"", {"dtrain.yml"}},
      {"project: p\ntrain: {run: \"\xff\xfe\"}\n", {"UTF-8"}},
      {alias_bomb(), {"dtrain.yml"}},
  };
  for (const Refusal& refusal : refusals) {
    fs::path project = cluster.project(refusal.yaml);
    for (const char* command : {"check", "train"}) {
      Output output = cluster.run({command}, project);
      CHECK_MESSAGE(output.code == 2, command << " took " << refusal.yaml << output.all());
      for (const std::string& text : refusal.says) {
        CHECK_MESSAGE(output.err.find(text) != std::string::npos,
                      "no \"" << text << "\" in: " << output.err);
      }
    }
  }
  // Nothing was submitted, so nothing was started either.
  CHECK(cluster.processes().empty());
}

TEST_CASE("hard limits are refused where no host can keep them") {
  Cluster cluster;
  cluster.drop_root();
  const fs::path project = cluster.project(
      "project: p\ntrain:\n  resources: {cpus: 0.5, mem: 50}\n  limits: {mem: hard, cpus: hard}\n"
      "  run: echo it ran\n");
  if (facts(cluster.run({"hosts", "--json"}))["hosts"][0]["cgroup"] != "none") {
    return say_skipped("control groups are writable without root's rights");
  }
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"train"}, {"train", "--dry-run"}}) {
    const Output refused = cluster.run(command, project);
    CHECK(refused.code == 2);
    CHECK_MESSAGE(refused.err.find("needs a host that can keep `limits: {cpus: hard, mem: hard}`") !=
                      std::string::npos,
                  refused.all());
    CHECK(refused.err.find("--set train.limits=null does without") != std::string::npos);
  }
  const Output soft = cluster.run({"train", "--set", "train.limits=null"}, project);
  CHECK_MESSAGE(soft.code == 0, soft.all());
}

TEST_CASE("check says where the roles are those of the first member only") {
  Cluster cluster;
  const fs::path project = cluster.project(
      "project: p\ntrain: {framework: tensorflow, tensorflow: {distributed: {worker: [1, 3]}}, run: echo}\n");
  CHECK(cluster.run({"check"}, project).out ==
        "dtrain.yml is fine: p, tensorflow, 1 master (the first member), a set of 2 members\n");
  CHECK(cluster.run({"check", "--set", "train.tensorflow.distributed.worker=2"}, project).out ==
        "dtrain.yml is fine: p, tensorflow, 1 master, 1 worker\n");
}

TEST_CASE("a directory without a file says which files were looked for and what makes one") {
  Cluster cluster;
  fs::path project = cluster.project("empty", {{"train.py", ""}});
  Output output = cluster.run({"train"}, project);
  CHECK(output.code == 2);
  CHECK(output.err.find("dtrain.yml") != std::string::npos);
  CHECK(output.err.find("riseml.yml") != std::string::npos);
  CHECK(output.err.find("dtrain init") != std::string::npos);

  CHECK(cluster.run({"init"}, project).code == 0);
  CHECK(cluster.run({"init", "-f", "other.yml"}, project).out.ends_with("then: dtrain train -f other.yml\n"));
  // As RiseML's commands called it.
  for (const char* option : {"--file=", "--config-file="}) {
    const std::string file = option + std::string(option[2] == 'f' ? "a.yml" : "b.yml");
    CHECK(cluster.run({"init", file}, project).code == 0);
    CHECK(cluster.run({"check", file}, project).code == 0);
    const Output train = cluster.run({"train", "--dry-run", file}, project);
    CHECK_MESSAGE(train.code == 0, train.all());
  }
  CHECK(cluster.run({"check"}, project).code == 0);
  Output train = cluster.run({"train"}, project);
  CHECK_MESSAGE(train.code == 0, train.all());
}

TEST_CASE("what init and -f advise is what they take") {
  Cluster cluster;
  const fs::path project = cluster.project("empty", {{"train.py", ""}});
  const Output missing = cluster.run({"check", "-f", "small.yml"}, project);
  CHECK(missing.code == 2);
  CHECK_MESSAGE(missing.err.find("dtrain init -f small.yml") != std::string::npos, missing.err);
  CHECK(cluster.run({"init", "-f", "small.yml", "-n", "p"}, project).code == 0);
  CHECK(cluster.run({"check", "-f", "small.yml"}, project).code == 0);
  CHECK(cluster.run({"init", "--file", "long.yml", "-n", "p"}, project).code == 0);  // as train and check have it
  const Output name = cluster.run({"init", "-n", "p-"}, project);
  CHECK(name.code == 2);
  CHECK_MESSAGE(name.err.find("at least two") == std::string::npos, name.err);  // "p" was taken
  CHECK(name.err.find("beginning and ending with a letter or digit") != std::string::npos);
}

TEST_CASE("a directory that is gone, or holds the whole machine, is no project") {
  Cluster cluster;
  const Output all = cluster.run({"train", "--", "true"}, "/");
  CHECK(all.code == 2);
  CHECK_MESSAGE(all.err.find("the project's directory is /,") != std::string::npos, all.err);
  Command command = cluster.command({"train", "--", "true"});
  command.argv.insert(command.argv.begin(), {"/bin/sh", "-c", "mkdir here; cd here; rmdir ../here; exec \"$0\" \"$@\""});
  const Output gone = run(command);
  CHECK(gone.code == 2);
  CHECK_MESSAGE(gone.err.find("the current directory is gone") != std::string::npos, gone.err);
}

TEST_CASE("-f beside a command is refused") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {run: echo}\n");
  for (const char* const file : {"dtrain.yml", "nowhere.yml"}) {
    const Output output = cluster.run({"train", "-f", file, "--", "true"}, project);
    CHECK(output.code == 2);
    CHECK(output.err == fmt::format("dtrain: -f {}: a command is run without a YAML file\n"
                                    "  hint: leave out -f, or the command\n",
                                    file));
  }
}

TEST_CASE("-f with a directory says that it takes a file") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain: {run: echo}\n");
  Output output = cluster.run({"train", "-f", "."}, project);
  CHECK(output.code == 2);
  CHECK_MESSAGE(output.err.find("is a directory") != std::string::npos, output.err);
}

TEST_CASE("config.yml: a mistake stops what would start with it, and names its place") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain: {run: echo}\n");
  fs::create_directories(cluster.home());
  write_file(cluster.home() / "config.yml", "sync:\n  max-flie: 1GiB\n");
  Output output = cluster.run({"train"}, project);
  CHECK(output.code == 2);
  CHECK_MESSAGE(output.err.find("config.yml:2:3: sync.max-flie") != std::string::npos, output.err);
  CHECK(cluster.processes().empty());
}

TEST_CASE("config.yml: an address that no other host can reach is refused") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain: {run: echo}\n");
  fs::create_directories(cluster.home());
  write_file(cluster.home() / "config.yml", "host:\n  address: 127.0.0.1\n");
  Output output = cluster.run({"train"}, project);
  CHECK(output.code == 2);
  CHECK_MESSAGE(output.err.find("config.yml:2:12: host.address") != std::string::npos, output.err);
}

TEST_CASE("runner run: what makes no sense is refused before anything is dialled") {
  Cluster cluster;
  const std::string home = (cluster.folder() / "host").string();
  const struct {
    std::vector<std::string> words;
    std::string says;
  } refusals[] = {
      {{"--address", "bad addr"}, "--address 'bad addr'"},
      {{"--address", "0.0.0.0"}, "--address '0.0.0.0'"},
      {{"--address", "10.0.0.5:80"}, "--address '10.0.0.5:80'"},
      {{"--join", "tcp:1.2.3.4:5"}, "--join 'tcp:1.2.3.4:5'"},
      {{"--join", "1.2.3.4:5"}, "--join '1.2.3.4:5'"},
      {{"--join", "unix:"}, "--join 'unix:'"},
      {{"--join", "unix:/" + std::string(200, 'x')}, "107"},
      {{"--name", "a\tb"}, "--name"},
      {{"--cpus", "-1"}, "--cpus"},
      {{"--cpus", "0"}, "--cpus"},
  };
  for (const auto& refusal : refusals) {
    std::vector<std::string> words = {"runner", "run", "--home", home};
    words.insert(words.end(), refusal.words.begin(), refusal.words.end());
    const Output output = cluster.run(words);
    CHECK_MESSAGE(output.code == 2, output.all());
    CHECK_MESSAGE(output.err.find(refusal.says) != std::string::npos, output.err);
    CHECK_MESSAGE(output.err.find("hint: ") != std::string::npos, output.err);
  }
  CHECK(!fs::exists(home));
}

TEST_CASE("config.yml: what the host offers, and what a sync takes") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain: {run: echo}\n");
  fs::create_directories(cluster.home());
  write_file(cluster.home() / "config.yml",
             "host: {cpus: 3.5, mem: 7GiB}\nsync: {max-file: 1MiB}\n");
  auto host = facts(cluster.run({"hosts", "--json"}))["hosts"][0];
  CHECK(host["cpus"] == 3.5);
  CHECK(host["memory_bytes"] == uint64_t{7} << 30);
  write_file(project / "big.bin", std::string((1 << 20) + 1, 'x'));
  Output output = cluster.run({"train"}, project);
  CHECK(output.code == 2);
  CHECK_MESSAGE(output.err.find("sync.max-file") != std::string::npos, output.err);
  CHECK(cluster.run({"train", "--dry-run"}, project).err == output.err);
}

TEST_CASE("what train refuses of a project or a shell a dry run refuses in the same words") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {run: echo}\n");
  const auto refused = [&](std::vector<std::string> words) {
    const Output train = cluster.run(words, project);
    words.push_back("--dry-run");
    const Output dry = cluster.run(words, project);
    CHECK_MESSAGE(train.code == 2, train.all());
    CHECK_MESSAGE(dry.code == 2, dry.all());
    CHECK(dry.err == train.err);
    CHECK_MESSAGE(dry.out.empty(), dry.out);
  };
  fs::create_symlink("../elsewhere", project / "link");
  refused({"train"});
  fs::remove(project / "link");
  refused({"train", "--env", "NOBODY_HAS_SET_THIS"});
  refused({"train", "--set", "train.run=null", "--set", "train.framework=engine", "--set", "train.engine={model: lenet, data: {train: data/train}}"});
  const Output fine = cluster.run({"train", "--dry-run"}, project);
  CHECK_MESSAGE(fine.code == 0, fine.all());
  CHECK_FALSE(fs::exists(project / "runs"));
}

TEST_CASE("resources that no host can ever give are refused, naming the largest host") {
  Cluster cluster;
  fs::create_directories(cluster.home());
  write_file(cluster.home() / "config.yml", "host: {mem: 4GiB}\n");
  fs::path project =
      cluster.project("project: p\ntrain:\n  resources: {mem: 900GiB}\n  run: echo\n");
  Output output = cluster.run({"train"}, project);
  CHECK(output.code == 2);
  CHECK_MESSAGE(output.err.find("900 GiB on one host; the largest is ") != std::string::npos,
                output.err);
  CHECK_MESSAGE(output.out.empty(), output.out);  // nor is the project read before

  project = cluster.project("project: p\ntrain:\n  resources: {gpus: 1000}\n  run: echo\n");
  output = cluster.run({"train"}, project);
  CHECK(output.code == 2);
  CHECK_MESSAGE(output.err.find("GPU") != std::string::npos, output.err);
  Output dry = cluster.run({"train", "--dry-run"}, project);
  CHECK_MESSAGE(dry.code != 0, dry.all());
  project = cluster.project(
      "project: p\ntrain:\n  framework: tensorflow\n  resources: {gpus: 1000, mem: 900GiB}\n  run: echo\n"
      "  tensorflow: {distributed: {worker: 1, ps: {count: 1, resources: {mem: 900GiB}}}}\n");
  output = cluster.run({"train"}, project);
  CHECK_MESSAGE(output.err.find("e.g. --set train.resources.gpus=0 --set train.resources.mem=1GiB "
                                "--set train.tensorflow.distributed.ps.resources.mem=1GiB, or add a host\n") != std::string::npos,
                output.err);
  dry = cluster.run({"train", "--dry-run"}, project);
  CHECK(dry.err == output.err);
  CHECK(facts(cluster.run({"status", "-a", "--json"}))["experiments"].empty());
}

TEST_CASE("a file that can't be read stops the submission by name") {
  Cluster cluster;
  fs::path project = cluster.project(
      "project", {{"dtrain.yml", "project: p\ntrain: {run: echo}\n"}, {"secret.txt", "mine"}});
  fs::permissions(project / "secret.txt", fs::perms::none);
  cluster.drop_root();  // root reads everything
  Output output = cluster.run({"train"}, project);
  CHECK(output.code != 0);
  CHECK_MESSAGE(output.err.find("secret.txt") != std::string::npos, output.err);
}

TEST_CASE("names of what is not there: experiments, replicas, commands, parameters") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain: {run: echo}\n");
  CHECK(cluster.run({"train"}, project).code == 0);
  for (const char* command : {"status", "logs", "kill", "why", "wait", "monitor", "rerun"}) {
    Output output = cluster.run({command, "77"}, project);
    CHECK_MESSAGE(output.code == 2, command);
    CHECK_MESSAGE(output.err.find("77") != std::string::npos, command << ": " << output.err);
    output = cluster.run({command, "1..2"}, project);
    CHECK_MESSAGE(output.code == 2, command << ": " << output.all());
    output = cluster.run({command, ""}, project);
    CHECK_MESSAGE(output.code == 2, command << ": " << output.all());
    CHECK_MESSAGE(output.err.find("ID is empty") != std::string::npos, output.err);
  }
  const Output elsewhere = cluster.run({"rerun"}, cluster.project("other", {{"dtrain.yml", "project: other\ntrain: {run: echo}\n"}}));
  CHECK(elsewhere.code == 2);
  CHECK_MESSAGE(says(elsewhere, "nothing was submitted from this directory"), elsewhere.all());
  CHECK_MESSAGE(says(elsewhere, "rerun 1"), elsewhere.all());
  for (const char* command : {"status", "why"}) {
    Output output = cluster.run({command, "1.worker.1"}, project);
    CHECK_MESSAGE(output.code == 2, command);
    CHECK_MESSAGE(output.err.find("it has 1.train") != std::string::npos, output.err);
  }
  CHECK(cluster.run({"why", "1.train"}, project).code == 0);
  Output output = cluster.run({"logs", "1", "--attempt", "9"}, project);
  CHECK(output.code == 2);
  CHECK_MESSAGE(output.err.find("1 had no attempt 9") != std::string::npos, output.err);
  output = cluster.run({"statsu"});
  CHECK(output.code == 2);
  CHECK_MESSAGE(output.err.find("status") != std::string::npos, output.err);
  output = cluster.run({"train", "--env", "B=1", "--env", "OUTPUT_DIR=/y", "--env", "A=2"}, project);
  CHECK_MESSAGE(output.err == "dtrain: --env OUTPUT_DIR=/y: OUTPUT_DIR is set by dtrain itself; remove it\n", output.err);
  output = cluster.run({"train", "--env", "1=2"}, project);
  CHECK(output.code == 2);
  CHECK_MESSAGE(output.err == "dtrain: --env 1=2: '1' is not the name of an environment variable\n", output.err);
  output = cluster.run({"train", "--workrs", "2"}, project);
  CHECK(output.code == 2);
  CHECK_MESSAGE(output.err.find("--workers") != std::string::npos, output.err);
}

TEST_CASE("several IDs: all that are wrong are named, and nothing is done to the others") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain: {run: exec sleep 1000}\n");
  CHECK(cluster.run({"train", "-d"}, project).code == 0);
  for (const char* command : {"kill", "wait"}) {
    Output output = cluster.run({command, "1", "98", "99"}, project);
    CHECK_MESSAGE(output.code == 2, output.all());
    CHECK_MESSAGE(output.err.find("no experiment 98; no experiment 99") != std::string::npos,
                  output.err);
  }
  CHECK(facts(cluster.run({"status", "1", "--json"}))["exit_code"].is_null());
  CHECK(cluster.run({"kill", "1"}).code == 0);
  CHECK(cluster.run({"wait", "1"}).code == 130);
}
