// An experiment's own Python environment: made once by 4.build, with a real pip and a package from
// a folder, so that no network is needed.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

constexpr std::chrono::seconds kLong{180};

void make_wheel(const fs::path& folder, const std::string& version, const std::string& source, const std::string& name = "tiny") {
  Command command;
  command.argv = {"python3",       SOURCE_DIR "/tests/support/make_wheel.py",
                  folder.string(), name,
                  version,         source};
  const Output made = run(command);
  REQUIRE_MESSAGE(made.code == 0, made.all());
}

// A project that needs the package `tiny`, and has it with it.
fs::path project_with(Cluster& cluster, const std::string& install, const std::string& more = "") {
  const fs::path project = cluster.project(
      "p",
      {{"dtrain.yml", "project: p\ntrain:\n  resources: {cpus: 0.1, mem: 32}\n  install:\n" +
                          install + more + "  run: python -c 'import tiny; print(tiny.words)'\n"},
       {"requirements.txt", "--no-index\n--find-links wheels\ntiny==1.0\n"}});
  fs::create_directories(project / "wheels");
  make_wheel(project / "wheels", "1.0", "words = 'it is tiny'");
  return project;
}

constexpr const char* kInstall = "    - pip install -r requirements.txt\n";

// Its build says "under way" and waits until the gate is written to.
struct GatedBuild {
  fs::path project;
  fs::path gate;
};
GatedBuild gated_project(Cluster& cluster) {
  const fs::path gate = cluster.folder() / "gate";
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  const std::string wait = fmt::format("    - echo under way\n    - cat {}\n", gate.string());
  return {project_with(cluster, kInstall + wait), gate};
}

size_t environments(Cluster& cluster) {
  size_t count = 0;
  for (const auto& key : fs::directory_iterator(cluster.home() / "runner/envs")) {
    for (const auto& made : fs::directory_iterator(key.path())) {
      count += fs::exists(made.path() / ".complete");
    }
  }
  return count;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE(
    "an environment is made once, used by all with the same recipe, and made anew when asked") {
  Cluster cluster;
  const fs::path project = project_with(cluster, kInstall);

  const Output first = cluster.run({"train"}, project, kLong);
  REQUIRE_MESSAGE(first.code == 0, first.all());
  CHECK_MESSAGE(says(first, "--> BUILDING"), first.all());
  CHECK(says(first, "1.build"));
  CHECK(says(first, "Building your environment"));
  CHECK(says(first, "pip install -r requirements.txt"));
  CHECK(says(first, "it is tiny"));
  CHECK(says(cluster.run({"logs", "1.build"}), "Building your environment"));
  CHECK(!says(cluster.run({"logs", "1.build"}), "it is tiny"));
  const auto shown = facts(cluster.run({"status", "1", "--json"}));
  CHECK_MESSAGE(shown["replicas"].size() == 2, shown.dump());

  write_file(project / "other.py", "changes nothing of the recipe\n");
  const Output second = cluster.run({"train"}, project, kLong);
  CHECK_MESSAGE(second.code == 0, second.all());
  CHECK_MESSAGE(!says(second, "BUILDING"), second.all());
  CHECK(!says(second, "2.build"));
  CHECK(says(second, "it is tiny"));
  CHECK(environments(cluster) == 1);

  const Output anew = cluster.run({"train", "--rebuild"}, project, kLong);
  CHECK_MESSAGE(anew.code == 0, anew.all());
  CHECK_MESSAGE(says(anew, "BUILDING"), anew.all());
  CHECK(environments(cluster) == 2);

  write_file(project / "requirements.txt", "--no-index\n--find-links wheels\ntiny\n");
  const Output changed = cluster.run({"train"}, project, kLong);
  CHECK_MESSAGE(says(changed, "BUILDING"), changed.all());
  CHECK(environments(cluster) == 3);

  // Those that nothing uses go when somebody asks, and are made again when they are needed.
  auto running =
      cluster.start({"train", "--tied", "--set", "train.run=echo it runs; sleep 1000"}, project);
  running->wait_for("it runs", kLong);
  const auto plan = facts(cluster.run({"prune", "--environments", "--dry-run", "--json"}));
  CHECK_MESSAGE(plan["environments"] == 2, plan.dump());
  CHECK(plan["environment_bytes"] > 2'000'000);
  const Output asked = cluster.run({"prune", "--environments"});
  CHECK(asked.code == 2);   // nobody is there to answer
  CHECK_MESSAGE(says(asked, "environments   2 that nothing uses, "), asked.all());
  CHECK(environments(cluster) == 3);
  const Output pruned = cluster.run({"prune", "--environments", "--yes"});
  CHECK_MESSAGE(says(pruned, "environments   2 that nothing uses, "), pruned.all());
  while (environments(cluster) != 1) continue;
  running->signal(SIGTERM);
  running->wait();
  CHECK(!says(cluster.run({"train"}, project, kLong), "BUILDING"));
  // Whose end has just been told uses nothing any more.
  CHECK(says(cluster.run({"prune", "--environments", "--yes"}), "environments   1 that"));
  while (environments(cluster) != 0) continue;
  CHECK(says(cluster.run({"prune", "--environments", "--dry-run"}), "There is no environment that nothing uses"));
  CHECK(says(cluster.run({"train"}, project, kLong), "BUILDING"));
}

TEST_CASE("attempts are counted without those of builds") {
  Cluster cluster;
  const fs::path project = project_with(cluster, kInstall, "  restart: {limit: 2, backoff: 0s}\n");
  const std::string fails_twice = "train.run=echo attempt=$DTRAIN_ATTEMPT; [ $DTRAIN_ATTEMPT = 3 ]";
  const Output trained = cluster.run({"train", "--set", fails_twice}, project, kLong);
  REQUIRE_MESSAGE(trained.code == 0, trained.all());
  for (const char* attempt : {"1", "2", "3"}) {
    const Output logs = cluster.run({"logs", "1.train", "--attempt", attempt});
    CHECK_MESSAGE(says(logs, fmt::format("attempt={}", attempt)), logs.all());
  }
  CHECK(facts(cluster.run({"status", "1", "--json"}))["attempt"] == 3);
}

// Another installer knows neither all of pip's options nor its settings: which index, above all.
TEST_CASE("pip installs what pip is asked to, whatever else the host has") {
  Cluster cluster;
  const fs::path bin = cluster.folder() / "bin", uv = bin / "uv";
  fs::create_directories(bin);
  write_file(uv, "#!/bin/sh\necho uv was asked\nexit 3\n");
  fs::permissions(uv, fs::perms::owner_all);
  cluster.env["PATH"] = bin.string() + ":" + getenv("PATH");
  const fs::path project = project_with(cluster, "    - pip install -r requirements.txt --retries 0\n");
  const Output output = cluster.run({"train"}, project, kLong);
  CHECK_MESSAGE(output.code == 0, output.all());
  CHECK(says(output, "it is tiny"));
  CHECK(!says(output, "uv was asked"));

  const fs::path other = project_with(cluster, "    - uv pip install -r requirements.txt\n");
  const Output asked = cluster.run({"train"}, other, kLong);
  CHECK(asked.code == 3);
  CHECK_MESSAGE(says(asked, "Failed with exit code 3: uv pip install -r requirements.txt"), asked.all());
}

TEST_CASE("a step that fails ends the experiment with its code, named, and its last lines") {
  Cluster cluster;
  const fs::path project =
      project_with(cluster, "    - pip install --no-index tiny-none\n    - echo never\n");
  const Output output = cluster.run({"train"}, project, kLong);
  CHECK(output.code == 1);
  CHECK_MESSAGE(says(output, "1 failed"), output.all());
  CHECK(says(output, "1.build: exit code 1"));
  CHECK(says(output, "Failed with exit code 1: pip install --no-index tiny-none"));
  CHECK(!says(output, "never"));
  CHECK(!says(output, "it is tiny"));
  CHECK(environments(cluster) == 0);

  const fs::path other = project_with(cluster, "    - sh -c 'exit 7'\n");
  CHECK(cluster.run({"train"}, other, kLong).code == 7);

  const fs::path early = project_with(cluster, "    - exit 0\n    - echo never\n");
  const Output ended = cluster.run({"train"}, early, kLong);
  CHECK_MESSAGE(ended.code == 1, ended.all());
  CHECK(says(ended, "A step ended the build before its end: exit 0"));
  CHECK(environments(cluster) == 0);
}

TEST_CASE("where there is no such version of the framework it is said which there is") {
  Cluster cluster;
  const fs::path project = project_with(cluster, "    - echo never\n");
  for (const std::string version : {"2.15.1", "2.17.0", "2.18.0rc1"}) make_wheel(project / "wheels", version, "", "tensorflow_cpu");
  cluster.env["PIP_NO_INDEX"] = "1";
  cluster.env["PIP_FIND_LINKS"] = (project / "wheels").string();
  const std::vector<std::string> old = {"train", "--set", "train.framework=tensorflow", "--set", "train.tensorflow.version=1.2.1"};
  const Output failed = cluster.run(old, project, kLong);
  CHECK(failed.code == 1);
  CHECK_MESSAGE(says(failed, "there is tensorflow-cpu 2.17.0: dtrain train --set train.tensorflow.version=2.17.0\n"), failed.all());
  std::vector<std::string> served = old;
  served.insert(served.end(), {"--set", "train.tensorflow.distributed={worker: 1, ps: 1}"});
  const Output with_ps = cluster.run(served, project, kLong);
  CHECK_MESSAGE(says(with_ps, "--set train.tensorflow.version=2.15.1\n"), with_ps.all());
}

TEST_CASE("what fails for one member of a set is not tried for each of the others") {
  Cluster cluster;
  const fs::path project =
      project_with(cluster, "    - sh -c 'exit 7'\n", "  parameters: {a: [1, 2, 3, 4]}\n");
  for (const char* name : {"train", "rerun"}) {
    const Output output = cluster.run({name}, project, kLong);
    CHECK_MESSAGE(output.code == 7, output.all());
    const std::string log = cluster.run({"logs"}, project).all();
    CHECK_MESSAGE(count(log, " -m venv\n") == 1, log);
    CHECK(count(log, "Failed with exit code 7: sh -c 'exit 7'\n") == 1);
    CHECK(count(log, "The same build has failed for ") == 3);
    CHECK(count(log, ".build with exit code 7: sh -c 'exit 7'\n") == 3);
  }
}

TEST_CASE("the note of a failed build that a power cut has emptied is as good as none") {
  Cluster cluster;
  const fs::path project = project_with(cluster, "    - sh -c 'exit 7'\n");
  CHECK(cluster.run({"train"}, project, kLong).code == 7);
  size_t notes = 0;
  for (const auto& entry : fs::recursive_directory_iterator(cluster.home() / "runner/envs")) {
    if (entry.path().filename() != "failed") continue;
    write_file(entry.path(), "");
    ++notes;
  }
  CHECK(notes == 1);
  const Output again = cluster.run({"train"}, project, kLong);
  CHECK_MESSAGE(again.code == 7, again.all());
}

TEST_CASE("an index that can't be reached is named") {
  Cluster cluster;
  const fs::path project = project_with(
      cluster, "    - pip install --retries 0 tiny-none\n",
      "  env: {PIP_INDEX_URL: 'http://me:secret@127.0.0.1:1/simple', PIP_NO_INDEX: '0'}\n");
  const Output output = cluster.run({"train"}, project, kLong);
  CHECK(output.code == 1);
  CHECK_MESSAGE(
      says(output, "The package index 127.0.0.1:1/simple can't be reached from this host: "),
      output.all());
}

TEST_CASE("a build that is killed leaves nothing that counts, and the next one begins afresh") {
  Cluster cluster;
  const auto [project, gate] = gated_project(cluster);
  auto train = cluster.start({"train"}, project);
  train->wait_for("under way", kLong);
  CHECK(cluster.run({"kill", "1"}).code == 0);
  const Output killed = train->wait();
  CHECK_MESSAGE(killed.code == 130, killed.all());
  CHECK(environments(cluster) == 0);

  auto again = cluster.start({"train"}, project);
  again->wait_for("under way", kLong);
  write_file(gate, "go on\n");
  const Output output = again->wait(kLong);
  CHECK_MESSAGE(output.code == 0, output.all());
  CHECK(says(output, "it is tiny"));
  CHECK(environments(cluster) == 1);
}

TEST_CASE("a build survives the daemon and the runner; who wants the same waits for it") {
  Cluster cluster;
  const auto [project, gate] = gated_project(cluster);
  auto train = cluster.start({"train"}, project);
  train->wait_for("under way", kLong);
  auto other = cluster.start({"train"}, project);
  other->wait_for("Another build of the same environment is under way", kLong);
  kill_all(cluster.processes("daemon run"));
  kill_all(cluster.processes("runner run"));
  CHECK(cluster.run({"status"}).code == 0);
  write_file(gate, "go on\n");
  const Output first = train->wait(kLong);
  CHECK_MESSAGE(first.code == 0, first.all());
  const Output second = other->wait(kLong);
  CHECK_MESSAGE(second.code == 0, second.all());
  CHECK(says(first, "it is tiny"));
  CHECK(says(second, "It is made: "));
  CHECK(says(second, "it is tiny"));
  CHECK(environments(cluster) == 1);
}
