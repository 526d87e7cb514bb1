#include "runner/cleanup.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>

#include "runner/mpi_launch.h"
#include "runner/trees.h"
#include "runner/workdir.h"
#include "schema/fd.h"
#include "schema/snapshot.h"
#include "tests/support/project.h"
#include "tests/support/skipped.h"
#include "tests/support/tiny_disk.h"

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
  const LaunchDir directory(site.launches() / to_string(LaunchId{launch.experiment, 1}));
  fs::create_directories(directory.path());
  REQUIRE(directory.write_launch(launch).ok());
  return directory;
}

TEST_CASE("what a worker or launcher of MPI that was killed kept in memory goes with its launch") {
  const test::TemporaryFolder folder;
  LaunchRecord launch;
  launch.experiment = {1, 0};
  launch.attempt = 2;
  ReplicaLaunch worker;
  worker.id = {launch.experiment, Role::Worker, 1};
  worker.env["DTRAIN_SUBMISSION"] = folder.path().string();   // nobody else's
  launch.replicas.push_back(worker);
  worker.id = {launch.experiment, Role::Launcher, 0};
  launch.replicas.push_back(worker);
  worker = launch.replicas.front();
  const LaunchDir directory(folder / "1@2");
  fs::create_directories(directory.path());
  REQUIRE(directory.write_launch(launch).ok());

  const fs::path of_launcher = mpi_launcher_files(mpi_directory(folder.path().string(), worker.id.experiment, 2));
  fs::create_directories(of_launcher / "ompi");
  const fs::path link = mpi_directory(folder.path().string(), worker.id.experiment, 2), files = mpi_worker_files(link.string(), worker.id);
  fs::create_symlink(directory.path(), link);
  fs::create_directories(files / "ompi");
  CHECK(remove_launch(directory));
  CHECK(!fs::is_symlink(fs::symlink_status(link)));
  CHECK(!fs::exists(files));
  CHECK(!fs::exists(of_launcher));
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

TEST_CASE("trees that no launch uses are counted, and go when somebody asks for that") {
  const test::TemporaryFolder folder;
  LaunchSite site;
  site.home = folder.path();
  site.trees = std::move(Trees::open(folder / "trees")).value();
  const fs::path first = build_tree(*site.trees, folder / "first", 800);
  const fs::path second = build_tree(*site.trees, folder / "second", 900);
  write_launch(site, 1, first);
  CHECK(unused_tree_bytes(site) == 900);
  prune_trees(site);
  CHECK(fs::exists(first));
  CHECK(!fs::exists(second));
  CHECK(unused_tree_bytes(site) == 0);
}

TEST_CASE("an environment is used by whose python lies in it, whatever variables its user sets") {
  const test::TemporaryFolder folder;
  LaunchSite site;
  site.home = folder.path();
  const fs::path used = site.envs() / "key/1";
  const fs::path unused = site.envs() / "key/2";
  test::write_file(used / ".complete", "");
  test::write_file(unused / ".complete", "");
  LaunchRecord launch;
  launch.experiment = {4, 0};
  launch.attempt = 1;
  ReplicaLaunch replica;
  replica.id = {launch.experiment, Role::Train, 0};
  replica.attempt = 1;
  replica.argv = {"true"};
  replica.env = {{"VIRTUAL_ENV", "/of/the/user"}, {"PATH", (used / "bin").string() + ":/usr/bin"}};
  launch.replicas = {replica};
  const LaunchId name{launch.experiment, 1};
  fs::create_directories(site.launches() / to_string(name));
  REQUIRE(LaunchDir(site.launches() / to_string(name)).write_launch(launch).ok());
  CHECK(count_unused_environments(site, {name}).count == 1);
  prune_environments(site, {name});
  CHECK(fs::exists(used));
  CHECK(!fs::exists(unused));
}

// Builds have numbers of their own, and what they were for may have the same one, and run by now.
TEST_CASE("what MPI needs goes with the gang's launch, and not with that of its builds") {
  const test::TemporaryFolder folder;
  LaunchSite site;
  site.home = folder.path();
  const ExperimentId experiment{4, 0};
  const std::string submission = folder.path().string();   // nobody else's
  const std::string directory = mpi_directory(submission, experiment, 1);
  fs::create_directory_symlink(folder.path(), directory);
  const auto remove = [&](Role role) {
    LaunchRecord launch;
    launch.experiment = experiment;
    launch.attempt = 1;
    ReplicaLaunch& replica = launch.replicas.emplace_back();
    replica.id = {experiment, role, 0};
    replica.attempt = 1;
    replica.argv = {"true"};
    replica.env = {{"DTRAIN_SUBMISSION", submission}};
    const LaunchDir made(site.launches() / to_string(launch_of(replica.id, 1)));
    fs::create_directories(made.path());
    REQUIRE(made.write_launch(launch).ok());
    CHECK(remove_launch(made));
    CHECK(!fs::exists(made.path()));
  };
  remove(Role::Build);
  CHECK(fs::is_symlink(directory));
  remove(Role::Launcher);
  CHECK(!fs::is_symlink(directory));
}

TEST_CASE("places of builds are of their launches") {
  const test::TemporaryFolder folder;
  LaunchSite site;
  site.home = folder.path();
  const fs::path gang = site.work() / "4.train@1", build = site.work() / "4.build@1";
  for (const fs::path& place : {gang, build}) fs::create_directories(place);
  const LaunchDir of_builds(site.launches() / "4.build@1");
  fs::create_directories(of_builds.path());
  CHECK(remove_unprepared(site, of_builds));
  CHECK(!fs::exists(build));
  CHECK(fs::exists(gang));
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
struct EndedReplica {
  test::TemporaryFolder folder;
  LaunchDir directory{folder / "launches/7@1"};
  LaunchRecord launch;
  fs::path work, out;

  explicit EndedReplica(std::string outputs) {
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
  Result<std::string> release() const {
    TRY(const ReleasedWork released, release_work(launch, directory, id(), false));
    CHECK(released.keeps == (released.remarks.find("kept 7 days") != std::string::npos));
    return released.remarks;
  }
};

TEST_CASE("what is left is kept for a week from the end on, however long the run was") {
  EndedReplica ended("result");
  test::write_file(ended.work / "note", "left");
  LaunchSite site;
  site.home = ended.folder.path();
  const auto age = [&] {
    fs::last_write_time(ended.place(), fs::file_time_type::clock::now() - std::chrono::hours(8 * 24));
  };
  age();
  REQUIRE(ended.release().value().find("kept 7 days") != std::string::npos);
  remove_old_work(site, {}, true);
  CHECK(fs::exists(ended.work / "note"));
  age();
  remove_old_work(site, {}, false);
  CHECK(fs::exists(ended.work / "note"));
  remove_old_work(site, {}, true);
  CHECK(!fs::exists(ended.place()));
}

TEST_CASE("outputs wait for descriptors, and what is left can't be taken for nothing") {
  EndedReplica ended("result");
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
  CHECK(released->find("left 4 B in note, kept 7 days") != std::string::npos);
}

TEST_CASE("a later attempt's outputs take the place of an earlier one's, links and all") {
  EndedReplica ended("ckpt/");
  test::write_file(ended.work / "ckpt/model.bin", "first");
  test::write_file(ended.work / "ckpt/part/a", "first");
  fs::create_symlink("model.bin", ended.work / "ckpt/latest");
  fs::create_symlink("part", ended.work / "ckpt/turns");
  REQUIRE(ended.release().ok());
  ended.begin(2);
  test::write_file(ended.work / "ckpt/model.bin", "another");
  test::write_file(ended.work / "ckpt/turns/b", "another");
  test::write_file(ended.work / "ckpt/zip", "another");
  fs::create_symlink("zip", ended.work / "ckpt/latest");
  REQUIRE(ended.release().value().find("not collected") == std::string::npos);
  CHECK(test::read_file(ended.out / "ckpt/model.bin") == "another");
  CHECK(fs::read_symlink(ended.out / "ckpt/latest") == "zip");
  CHECK(test::read_file(ended.out / "ckpt/turns/b") == "another");
  CHECK(!fs::is_symlink(ended.out / "ckpt/turns"));
  CHECK(test::read_file(ended.out / "ckpt/part/a") == "first");
}

TEST_CASE("what was collected is not left, and what was not there is said") {
  EndedReplica ended("ckpt/best/");
  test::write_file(ended.directory.path() / "outputs", std::string("*.bin\0nosuch\0ckpt/best/\0", 24));
  test::write_file(ended.work / "ckpt/best/a", "a");
  test::write_file(ended.work / "x.bin", "xxxx");
  test::write_file(ended.work / "x.txt", "xx");
  CHECK(ended.release().value() ==
        "left 2 B in x.txt, kept 7 days in " + ended.place().string() +
            " (dtrain output cp 7.train); outputs that were not there: nosuch");
  CHECK(test::read_file(ended.out / "ckpt/best/a") == "a");
  CHECK(test::read_file(ended.out / "x.bin") == "xxxx");
  CHECK(!fs::exists(ended.out / "x.txt"));
  fs::remove(ended.work / "x.bin");
  fs::remove(ended.work / "x.txt");
  CHECK(ended.release().value() == "outputs that were not there: *.bin, nosuch");
  test::write_file(ended.directory.path() / "outputs", std::string("ckpt\0", 5));
  CHECK(ended.release().value().empty());
  ended.launch.replicas[0].id = parse_replica_id("7.worker.1").value();
  test::write_file(ended.directory.path() / "outputs", std::string("nosuch\0", 7));
  CHECK(ended.release().value().empty());
}

TEST_CASE("what can't be collected is said, and the rest is collected") {
  EndedReplica ended("ckpt");
  test::write_file(ended.work / "ckpt/a", "a");
  REQUIRE(::mkfifo((ended.work / "ckpt/b").c_str(), 0600) == 0);
  test::write_file(ended.work / "ckpt/c", "c");
  test::write_file(ended.work / "ckpt/d", "d");
  fs::create_directories(ended.out / "ckpt/c/somebody's");
  const std::string said = ended.release().value();
  CHECK(said.find("; not collected: ckpt/b: not a file, ckpt/c: Is a directory") != std::string::npos);
  CHECK(test::read_file(ended.out / "ckpt/a") == "a");
  CHECK(test::read_file(ended.out / "ckpt/d") == "d");
  CHECK(std::distance(fs::directory_iterator(ended.out / "ckpt"), {}) == 3);
}

TEST_CASE("outputs wait for room, and none has its name before it is whole") {
  EndedReplica ended("ckpt");
  const test::TinyDisk disk(ended.out, "size=1m");
  if (!disk.mounted) return tests::say_skipped("mounting a small file system needs root");
  test::write_file(ended.out / "filler", std::string(600 << 10, 'x'));
  test::write_file(ended.work / "ckpt/a", "a");
  test::write_file(ended.work / "ckpt/b", std::string(500 << 10, 'b'));
  test::write_file(ended.work / "ckpt/c", "c");
  const auto too_early = ended.release();
  REQUIRE(!too_early.ok());
  CHECK(too_early.error().code == Code::ResourceExhausted);
  CHECK(test::read_file(ended.out / "ckpt/a") == "a");
  CHECK(std::distance(fs::directory_iterator(ended.out / "ckpt"), {}) == 1);
  const auto inode = [&] {
    struct stat st {};
    REQUIRE(::stat((ended.out / "ckpt/a").c_str(), &st) == 0);
    return st.st_ino;
  };
  const auto first = inode();

  fs::remove(ended.out / "filler");
  CHECK(ended.release().value().find("not collected") == std::string::npos);
  CHECK(test::read_file(ended.out / "ckpt/b") == std::string(500 << 10, 'b'));
  CHECK(test::read_file(ended.out / "ckpt/c") == "c");
  CHECK(inode() == first);  // not copied once more
}

}  // namespace
}  // namespace dtrain::runner
