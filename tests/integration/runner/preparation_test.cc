#include "runner/preparation.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>

#include "runner/trees.h"
#include "runner/workdir.h"
#include "schema/fd.h"
#include "schema/snapshot.h"
#include "tests/support/project.h"

namespace dtrain::runner {
namespace {

namespace fs = std::filesystem;

// The tree of a project with one file of that many bytes.
fs::path build_tree(Trees& trees, const fs::path& project, size_t bytes) {
  test::write_file(project / "file", std::string(bytes, 'x'));
  auto snapshot = take_snapshot(project, {});
  REQUIRE(snapshot.ok());
  SnapshotBlobs blobs(project, *snapshot);
  auto tree = ensure_tree(trees, snapshot->root,
                          [&](const std::vector<Sha256>& names, TreeBuilder& builder) -> Status {
                            for (const Sha256& name : names) {
                              TRY(const uint64_t size, blobs.size(name));
                              TRY(blobs.send(name, [&](std::string_view part, bool last) {
                                return builder.add(name, size, part, last);
                              }));
                            }
                            return ok();
                          });
  REQUIRE(tree.ok());
  return *tree;
}

LaunchDir write_launch(const LaunchSite& site, uint32_t number, const fs::path& tree) {
  LaunchRecord launch;
  launch.experiment = {number, 0};
  launch.attempt = 1;
  launch.tree = tree.string();
  const LaunchDir directory(site.launches() / LaunchDir::name_of(launch.experiment, 1));
  fs::create_directories(directory.path());
  REQUIRE(directory.write_launch(launch).ok());
  return directory;
}

TEST_CASE("trees beyond the limit go once no launch uses them") {
  const test::TemporaryFolder folder;
  LaunchSite site;
  site.home = folder.path();
  site.trees = std::move(Trees::open(folder / "trees")).value();
  site.trees_bytes_max = 1'000;
  const fs::path first = build_tree(*site.trees, folder / "first", 800);
  const fs::path second = build_tree(*site.trees, folder / "second", 900);
  const LaunchDir one = write_launch(site, 1, first);
  const LaunchDir two = write_launch(site, 2, second);
  trim_trees(site);
  CHECK(fs::exists(first));
  CHECK(fs::exists(second));

  // Nothing was built since: nothing is looked at.
  remove_launch(one);
  CHECK(!site.trees->has_grown());
  const fs::path third = build_tree(*site.trees, folder / "third", 10);
  trim_trees(site);
  CHECK(!fs::exists(first));
  CHECK(fs::exists(second));
  CHECK(fs::exists(third));
}

TEST_CASE("while a launch can't be read, no tree goes") {
  const test::TemporaryFolder folder;
  LaunchSite site;
  site.home = folder.path();
  site.trees = std::move(Trees::open(folder / "trees")).value();
  site.trees_bytes_max = 0;
  const fs::path tree = build_tree(*site.trees, folder / "project", 800);
  // A record that is a directory is there and can't be read.
  fs::create_directories(site.launches() / "1@1/record");
  trim_trees(site);
  CHECK(fs::exists(tree));
  fs::remove(site.launches() / "1@1/record");
  trim_trees(site);
  CHECK(!fs::exists(tree));
}

// A replica that has ended, and the view it wrote to.
struct Ended {
  test::TemporaryFolder folder;
  LaunchDir directory{folder / "launches/7@1"};
  LaunchRecord launch;
  fs::path work, out;

  explicit Ended(std::string outputs) {
    fs::create_directories(directory.path());
    outputs.push_back('\0');
    test::write_file(directory.path() / "outputs", outputs);
    launch.experiment = {7, 0};
    launch.work_root = (folder / "work").string();
    launch.replicas.emplace_back().id = parse_replica_id("7.train").value();
    out = launch.replicas[0].env["OUTPUT_DIR"] = folder / "out";
    begin(1);
  }
  void begin(uint32_t attempt) {
    launch.attempt = launch.replicas[0].attempt = attempt;
    const auto view = make_empty_view(place());
    REQUIRE(view.ok());
    work = launch.replicas[0].cwd = view->cwd;
  }
  const ReplicaId& id() const { return launch.replicas[0].id; }
  fs::path place() const { return launch.place_of(id()); }
  Result<std::string> release() const { return release_work(launch, directory, id()); }
};

TEST_CASE("what is left is kept for a week from the end on, however long the run was") {
  Ended ended("result");
  test::write_file(ended.work / "note", "left");
  LaunchSite site;
  site.home = ended.folder.path();
  const auto age = [&] {
    fs::last_write_time(ended.place(), fs::file_time_type::clock::now() - std::chrono::hours(8 * 24));
  };
  age();
  REQUIRE(ended.release().value().find("kept 7 days") != std::string::npos);
  remove_old_work(site, {});
  CHECK(fs::exists(ended.work / "note"));
  age();
  remove_old_work(site, {});
  CHECK(!fs::exists(ended.place()));
}

TEST_CASE("outputs wait for descriptors, and what is left can't be taken for nothing") {
  Ended ended("result");
  test::write_file(ended.work / "result", "42");
  test::write_file(ended.work / "note", "left");

  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{static_cast<rlim_t>(Fd(::dup(0)).get()), before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto too_early = ended.release();
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
  REQUIRE(!too_early.ok());
  CHECK(too_early.error().code == Code::ResourceExhausted);

  const auto released = ended.release();
  REQUIRE(released.ok());
  CHECK(test::read_file(ended.out / "result") == "42");
  CHECK(released->find("in note, result, kept 7 days") != std::string::npos);
}

}  // namespace
}  // namespace dtrain::runner
