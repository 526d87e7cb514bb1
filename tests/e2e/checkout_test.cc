// dtrain checkout: what an experiment was sent with.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

std::string snapshot_of(Cluster& cluster, const std::string& id) {
  return facts(cluster.run({"status", id, "--json"}))["snapshot"].get<std::string>();
}

mode_t mode_of(const fs::path& path) {
  struct stat found {};
  REQUIRE(::lstat(path.c_str(), &found) == 0);
  return found.st_mode;
}

}  // namespace

TEST_CASE("files, modes, links and empty directories come back as they were, and make the same snapshot again") {
  Cluster cluster;
  const std::string large = std::string(3'000'000, 'x') + "end";
  const fs::path project = cluster.project("project", {{"dtrain.yml", "project: p\ntrain: {run: ./run.sh}\n"},
                                                       {"run.sh", "#!/bin/sh\necho ran\n"},
                                                       {"sub/large", large},
                                                       {"sub/same", large},
                                                       {"sub/empty", ""},
                                                       {".gitignore", "*.o\n"},
                                                       {"left.o", "not sent"}});
  fs::permissions(project / "run.sh", fs::perms::owner_all);
  fs::permissions(project / "sub/same", fs::perms::owner_read);
  fs::create_directory(project / "nothing in it");
  fs::create_symlink("../run.sh", project / "sub/link");
  fs::create_symlink("nowhere", project / "dangling");
  // More than are asked for at once.
  fs::create_directory(project / "many");
  for (int i = 0; i < 10'050; ++i) write_file(project / fmt::format("many/{}", i), fmt::format("{}", i));
  REQUIRE(cluster.run({"train"}, project).code == 0);
  fs::remove_all(project);

  const fs::path here = cluster.folder() / "here";
  fs::create_directory(here);
  const Output out = cluster.run({"checkout", "1"}, here);
  REQUIRE_MESSAGE(out.code == 0, out.all());
  CHECK_MESSAGE(out.out == "10056 files of 1 in checkout-1: 5.8 MB\nNext: cd checkout-1 && dtrain train\n", out.out);
  const fs::path tree = here / "checkout-1";
  CHECK(read_file(tree / "sub/large") == large);
  CHECK(read_file(tree / "sub/same") == large);
  CHECK(read_file(tree / "many/10049") == "10049");
  CHECK(fs::is_empty(tree / "nothing in it"));
  CHECK(fs::read_symlink(tree / "sub/link") == "../run.sh");
  CHECK(fs::read_symlink(tree / "dangling") == "nowhere");
  CHECK_FALSE(fs::exists(tree / "left.o"));
  CHECK((mode_of(tree / "run.sh") & 0100) != 0);
  CHECK((mode_of(tree / "sub/same") & 0222) == 0);
  CHECK((mode_of(tree / "sub/large") & 0100) == 0);

  const Output again = cluster.run({"train"}, tree);
  CHECK_MESSAGE(says(again, "ran"), again.all());
  CHECK(snapshot_of(cluster, "2") == snapshot_of(cluster, "1"));
}

TEST_CASE("what the files alone would not submit again is added as a file") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {parameters: {a: 1}, run: 'echo a={{ a }}'}\n");
  REQUIRE(cluster.run({"train", "-p", "a=7"}, project).code == 0);
  const Output changed = cluster.run({"checkout", "1", "deep/down/"}, project);
  CHECK_MESSAGE(changed.out.ends_with("Next: cd deep/down && dtrain train -f dtrain-1.yml\n"), changed.all());
  CHECK(read_file(project / "deep/down/dtrain.yml") == read_file(project / "dtrain.yml"));
  CHECK(says(cluster.run({"train", "-f", "dtrain-1.yml"}, project / "deep/down"), "a=7"));

  const fs::path bare = cluster.project("bare", {{"said", "of the project\n"}});
  REQUIRE(cluster.run({"train", "--", "cat", "said"}, bare).code == 0);
  const Output added = cluster.run({"checkout", "3", "bare it is"}, project);
  CHECK_MESSAGE(added.out.ends_with("Next: cd 'bare it is' && dtrain train\n"), added.all());
  CHECK(says(cluster.run({"train"}, project / "bare it is"), "of the project"));
}

TEST_CASE("a member leads to that member, and what began suspended does not again") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {parameters: {x: [1, 'two words'], y: 3}, run: 'echo \"x=$X\"'}\n");
  REQUIRE(cluster.run({"train"}, project).code == 0);
  const Output member = cluster.run({"checkout", "1.2"}, project);
  CHECK_MESSAGE(member.out.ends_with("Next: cd checkout-1.2 && dtrain train -p 'x=two words'\n"), member.all());
  CHECK(says(cluster.run({"train", "-p", "x=two words"}, project / "checkout-1.2"), "x=two words"));

  REQUIRE(cluster.run({"train", "-d", "--suspended"}, project).code == 0);
  const Output suspended = cluster.run({"checkout", "3"}, project);
  CHECK_MESSAGE(suspended.out.ends_with("Next: cd checkout-3 && dtrain train\n"), suspended.all());
}

TEST_CASE("nothing that is there is touched, and what is not there any more is said") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {run: 'true'}\n");
  REQUIRE(cluster.run({"train"}, project).code == 0);
  fs::create_directory(project / "checkout-1");
  const Output there = cluster.run({"checkout", "1"}, project);
  CHECK(there.code == 2);
  CHECK_MESSAGE(says(there, "checkout-1 exists"), there.all());
  CHECK(fs::is_empty(project / "checkout-1"));
  CHECK(cluster.run({"checkout"}, project).code == 2);
  CHECK(says(cluster.run({"checkout", "1.train"}, project), "1.train"));
  REQUIRE(cluster.run({"prune", "1", "--yes"}, project).code == 0);
  const Output gone = cluster.run({"checkout", "1", "other"}, project);
  CHECK(gone.code == 2);
  CHECK_MESSAGE(says(gone, "1"), gone.all());
  CHECK_FALSE(fs::exists(project / "other"));
}
