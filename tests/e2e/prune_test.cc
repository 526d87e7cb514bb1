// What `dtrain prune` takes away, and that nothing that stays misses it.
#include <doctest/doctest.h>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

TEST_CASE("a pruned experiment is gone, and its project can be sent again") {
  Cluster cluster;
  fs::path project = cluster.project(
      "p", {{"dtrain.yml",
             "project: p\ntrain:\n  run: cat only-here; echo x > $OUTPUT_DIR/y; echo {{ a }}\n"
             "  parameters: {a: 1}\n"},
            {"only-here", "a file of this project\n"}});
  CHECK(cluster.run({"train"}, project).code == 0);
  CHECK(cluster.run({"train", "-p", "a=2"}, project).code == 0);

  Output asked = cluster.run({"prune", "1", "2"}, project);
  CHECK(asked.code == 2);  // nobody is there to answer
  CHECK_MESSAGE(says(asked, "--yes"), asked.all());
  CHECK(cluster.run({"logs", "1"}).code == 0);

  Output planned = cluster.run({"prune", "--older-than", "1ms", "--dry-run", "--json"}, project);
  CHECK_MESSAGE(facts(planned)["experiments"].size() == 2, planned.all());
  CHECK(facts(planned)["pruned"] == false);
  CHECK(facts(planned)["blob_bytes"] > 0);

  Output first = cluster.run({"prune", "1", "--yes"}, project);
  CHECK_MESSAGE(first.code == 0, first.all());
  CHECK_MESSAGE(says(first, "1 ended experiment is forgotten: 1"), first.all());
  for (const char* command : {"logs", "status", "why", "rerun"}) {
    Output gone = cluster.run({command, "1"}, project);
    CHECK(gone.code == 2);
    CHECK_MESSAGE(says(gone, "no experiment 1"), gone.all());
  }
  CHECK(fs::exists(cluster.home() / "outputs/1/y"));
  CHECK(says(cluster.run({"logs", "2"}), "a file of this project"));

  Output second = cluster.run({"prune", "2", "--outputs", "--yes", "--json"}, project);
  CHECK(facts(second)["pruned"] == true);
  CHECK(!fs::exists(cluster.home() / "outputs/2"));
  CHECK(fs::exists(project / "runs/1/y"));
  CHECK(!fs::is_symlink(project / "runs/2"));
  CHECK(fs::is_empty(cluster.home() / "blobs"));
  CHECK(fs::is_empty(cluster.home() / "logs"));

  Output again = cluster.run({"train"}, project);
  CHECK_MESSAGE(again.code == 0, again.all());
  CHECK(says(again, "a file of this project"));
  CHECK(says(cluster.run({"status", "-a"}), "3"));
}

TEST_CASE("with results goes the project's link to them, and nothing else of the project") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {run: echo x > $OUTPUT_DIR/y}\n");
  for (int i = 0; i < 5; ++i) CHECK(cluster.run({"train"}, project).code == 0);
  const fs::path mine = cluster.folder() / "mine";
  fs::create_directory(mine);
  fs::remove(project / "runs/2");
  fs::create_directory_symlink(mine, project / "runs/2");
  fs::remove(project / "runs/3");
  write_file(project / "runs/3", "mine");
  fs::remove(project / "runs/4");
  Output pruned = cluster.run({"prune", "1", "2", "3", "4", "--outputs", "--yes"});
  CHECK_MESSAGE(pruned.code == 0, pruned.all());
  CHECK(!fs::is_symlink(project / "runs/1"));
  CHECK(fs::read_symlink(project / "runs/2") == mine);
  CHECK(read_file(project / "runs/3") == "mine");

  fs::remove_all(project);
  pruned = cluster.run({"prune", "5", "--outputs", "--yes"});
  CHECK_MESSAGE(pruned.code == 0, pruned.all());
  CHECK(!fs::exists(cluster.home() / "outputs/5"));
}

TEST_CASE("sent files that hosts keep for the next run go, but for those of what runs") {
  Cluster cluster;
  const fs::path project = cluster.project("p", {{"dtrain.yml", "project: p\ntrain: {run: cat a-file}\n"}, {"a-file", "first\n"}});
  CHECK(cluster.run({"train"}, project).code == 0);
  write_file(project / "a-file", "second, and it runs\n");
  CHECK(cluster.run({"train", "-d", "--set", "train.run=cat a-file; sleep 600"}, project).code == 0);
  while (!says(cluster.run({"logs", "2"}), "second, and it runs")) continue;
  const auto looked = [&] { return facts(cluster.run({"prune", "--cache", "--dry-run", "--json"})); };
  while (looked()["cache_bytes"] == 0) continue;   // its launch is being removed
  CHECK(looked()["environments"] == 0);
  const Output asked = cluster.run({"prune", "--cache"});
  CHECK(asked.code == 2);
  CHECK_MESSAGE(says(asked, " of sent files that nothing uses, on 1 host"), asked.all());
  const auto trees = [&] { return std::distance(fs::directory_iterator(cluster.home() / "runner/trees"), {}); };
  CHECK(trees() == 4);   // each with its manifest
  const Output pruned = cluster.run({"prune", "--cache", "--yes"});
  CHECK_MESSAGE(says(pruned, "kept files     "), pruned.all());
  while (trees() != 2) continue;
  CHECK(says(cluster.run({"prune", "--cache", "--yes"}), "There is no kept file that nothing uses"));
  const Output again = cluster.run({"rerun", "1"}, project);
  CHECK_MESSAGE(says(again, "first"), again.all());
  CHECK(cluster.run({"kill", "2"}).code == 0);
}

TEST_CASE("what runs can't be pruned") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain: {run: sleep 1000}\n");
  CHECK(cluster.run({"train", "-d"}, project).code == 0);
  Output refused = cluster.run({"prune", "1", "--yes"}, project);
  CHECK(refused.code == 2);
  CHECK_MESSAGE(says(refused, "1 has not ended"), refused.all());
  Output set = cluster.run({"prune", "1.2", "--yes"}, project);
  CHECK(set.code == 2);
  CHECK_MESSAGE(says(set, "a set is forgotten as a whole"), set.all());
}
