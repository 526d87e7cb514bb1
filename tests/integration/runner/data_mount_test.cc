// Data sets in a mount namespace of a replica's own, with real processes. The mount point is a
// temporary directory: /data of the machine is neither needed nor touched.
#include "runner/data_mount.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include <chrono>
#include <thread>

#include "runner/data_sets.h"
#include "runner/process.h"
#include "runner/workdir.h"
#include "tests/integration/runner/kept_launch.h"
#include "tests/support/project.h"
#include "tests/support/skipped.h"

namespace dtrain::runner {
namespace {

namespace fs = std::filesystem;
using tests::say_skipped;

// A directory and a file as data sets, and an empty directory to show them in.
struct Sets {
  test::TemporaryFolder folder;
  fs::path point = folder / "data";
  Sets() {
    test::write_file(folder / "sets/mnist/train", "pixels\n");
    test::write_file(folder / "sets/words.txt", "some words\n");
    fs::create_directory(point);
  }
  DataMount mount() const {
    return {point.string(),
            {{"mnist", (folder / "sets/mnist").string()},
             {"words", (folder / "sets/words.txt").string()}}};
  }
  // Why nothing can be mounted here; empty: it can.
  std::string unavailable() const {
    const Status tried = try_data_mount(mount());
    return tried.ok() ? "" : tried.error().message;
  }
};

// What a shell prints that runs `script` with the data sets, to its end.
std::string shell(const Sets& sets, const std::string& script) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  SpawnRequest request;
  request.argv = {"sh", "-c", script};
  request.cwd = sets.folder.path().string();
  request.env = {{"PATH", "/usr/bin:/bin"}, {"LC_ALL", "C"}, {"DATA_DIR", sets.point.string()}};
  request.data = sets.mount();
  request.output_fd = write_end.get();
  Result<Child> child = spawn(request);
  REQUIRE_MESSAGE(child.ok(), (child.ok() ? "" : child.error().message));
  write_end.reset();
  std::string text;
  char bytes[4096];
  for (ssize_t got; (got = ::read(read_end.get(), bytes, sizeof bytes)) > 0;) {
    text.append(bytes, static_cast<size_t>(got));
  }
  REQUIRE(wait_readable(child->pidfd.get()));
  try_reap(*child);
  return text;
}

// It says "ready" and hangs, with the data sets.
Child hang(const Sets& sets, const fs::path& cwd) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  SpawnRequest request;
  request.argv = {std::string(BIN_DIR) + "/fake_trainer", "--print", "ready", "--hang"};
  request.cwd = cwd.string();
  request.data = sets.mount();
  request.output_fd = write_end.get();
  Result<Child> child = spawn(request);
  REQUIRE_MESSAGE(child.ok(), (child.ok() ? "" : child.error().message));
  char bytes[16];
  REQUIRE(::read(read_end.get(), bytes, sizeof bytes) == 6);
  return std::move(*child);
}

void end(Child& child) {
  ::kill(child.pid, SIGKILL);
  REQUIRE(wait_readable(child.pidfd.get()));
  try_reap(child);
}

TEST_CASE(
    "a process sees its data sets, read-only, and nothing else there; nobody else sees them") {
  const Sets sets;
  if (const std::string why = sets.unavailable(); !why.empty()) return say_skipped(why);
  CHECK(shell(sets, "ls $DATA_DIR; cat $DATA_DIR/mnist/train $DATA_DIR/words") ==
        "mnist\nwords\npixels\nsome words\n");
  for (const char* write : {"echo x > $DATA_DIR/mnist/train", "rm $DATA_DIR/mnist/train",
                            "echo x > $DATA_DIR/words", "mkdir $DATA_DIR/mine"}) {
    const std::string said = shell(sets, std::string(write) + " 2>&1");
    CHECK_MESSAGE(said.find("Read-only file system") != std::string::npos, said);
  }
  CHECK(shell(sets, "echo kept > beside; cat beside") == "kept\n");
  CHECK(test::read_file(sets.folder / "beside") == "kept\n");
  CHECK(fs::is_empty(sets.point));
  CHECK(test::read_file(sets.folder / "sets/mnist/train") == "pixels\n");
}

TEST_CASE("what is mounted below a data set is there, and read-only too") {
  const Sets sets;
  if (const std::string why = sets.unavailable(); !why.empty()) return say_skipped(why);
  fs::create_directory(sets.folder / "sets/mnist/more");
  const std::string inner = (sets.folder / "sets/mnist/more").string();
  REQUIRE(::mount("tmpfs", inner.c_str(), "tmpfs", 0, "size=1m") == 0);
  test::write_file(sets.folder / "sets/mnist/more/extra", "more\n");
  const std::string said =
      shell(sets, "cat $DATA_DIR/mnist/more/extra; echo x > $DATA_DIR/mnist/more/extra 2>&1");
  CHECK(::umount(inner.c_str()) == 0);
  CHECK(said.find("more\n") == 0);
  CHECK_MESSAGE(said.find("Read-only file system") != std::string::npos, said);
}

TEST_CASE("what can't be mounted is an error that says which") {
  const Sets sets;
  SpawnRequest request;
  request.argv = {"/bin/true"};
  request.data = sets.mount();
  SUBCASE("a set that went away") {
    fs::remove_all(sets.folder / "sets/mnist");
    const auto child = spawn(request);
    REQUIRE(!child.ok());
    CHECK(child.error().message.find("sets/mnist: No such file") != std::string::npos);
  }
  SUBCASE("a directory that went away") {
    if (const std::string why = sets.unavailable(); !why.empty()) return say_skipped(why);
    fs::remove(sets.point);
    const auto child = spawn(request);
    REQUIRE(!child.ok());
    CHECK(child.error().code == Code::FailedPrecondition);
    CHECK(child.error().message ==
          fmt::format("mounting on {}: No such file or directory", sets.point.string()));
  }
}

TEST_CASE("a work tree goes while processes with mounts of their own live, and after") {
  const Sets sets;
  if (const std::string why = sets.unavailable(); !why.empty()) return say_skipped(why);
  const fs::path tree = sets.folder / "tree";
  test::write_file(tree / "train.py", "print()\n");
  const auto mine = make_view(ViewSource(tree), sets.folder / "work/1@1", WorkdirKind::Overlay);
  const auto other = make_view(ViewSource(tree), sets.folder / "work/2@1", WorkdirKind::Overlay);
  if (!mine.ok() || !other.ok()) return say_skipped("no overlays here");
  // Its namespace has a copy of the other's mount.
  Child child = hang(sets, mine->cwd);
  CHECK(release_view(sets.folder / "work/2@1").ok());
  CHECK(!fs::exists(sets.folder / "work/2@1"));
  SUBCASE("once it has ended") {
    end(child);
    CHECK(release_view(sets.folder / "work/1@1").ok());
  }
  SUBCASE("under a process that nobody could end") {
    CHECK(release_view(sets.folder / "work/1@1").ok());
    end(child);
  }
  CHECK(!fs::exists(sets.folder / "work/1@1"));
  CHECK(fs::exists(tree / "train.py"));
}

TEST_CASE("a kept replica with data sets ends with its whole tree, however that hid") {
  const Sets sets;
  if (const std::string why = sets.unavailable(); !why.empty()) return say_skipped(why);
  for (const CgroupChoice choice : {CgroupChoice::Best, CgroupChoice::None}) {
    KeptLaunch launch(choice);
    launch.launch().data = sets.mount();
    const ReplicaId id =
        launch.add(1, {"--orphan", "--setsid", "--fork", "--clear-env", "--ignore", "15", "--hang",
                       "--then", "--print", "up", "--hang", "--then", "--hang"});
    launch.start();
    launch.wait_output(id, "up");
    CHECK(fs::is_empty(sets.point));
    launch.stop(id, 50);
    launch.wait_exit(id);
    CHECK(launch.survivors().empty());
  }
}

TEST_CASE("links, where nothing can be mounted without hiding what is there") {
  const Sets sets;
  Spec spec;
  spec.data = {{"mnist", (sets.folder / "sets/mnist").string()},
               {"words", (sets.folder / "sets/words.txt").string()}};
  const fs::path links = sets.folder / "launch/data";
  std::string point = sets.point.string();
  SUBCASE("no such directory") {
    point = (sets.folder / "nothing").string();
  }
  SUBCASE("something is in it") {
    test::write_file(sets.point / "mine", "mine");
  }
  SUBCASE("it is a link") {
    fs::create_directory(sets.folder / "real");
    fs::remove(sets.point);
    fs::create_symlink(sets.folder / "real", sets.point);
  }
  SUBCASE("it is a file") {
    fs::remove(sets.point);
    test::write_file(sets.point, "mine");
  }
  const auto place = place_data(spec, point, links);
  REQUIRE(place.ok());
  CHECK(place->mount == DataMount{});
  CHECK(place->directory == links.string());
  CHECK(test::read_file(links / "mnist/train") == "pixels\n");
  CHECK(test::read_file(links / "words") == "some words\n");
}

TEST_CASE("an empty directory is mounted on, and no links are made") {
  const Sets sets;
  if (const std::string why = sets.unavailable(); !why.empty()) return say_skipped(why);
  Spec spec;
  spec.data = {{"mnist", (sets.folder / "sets/mnist").string()}};
  const auto place = place_data(spec, sets.point.string(), sets.folder / "launch/data");
  REQUIRE(place.ok());
  CHECK(place->directory == sets.point.string());
  CHECK(place->mount.sets.size() == 1);
  CHECK(!fs::exists(sets.folder / "launch"));
  CHECK(fs::is_empty(sets.point));
}

TEST_CASE("each data set that is not there, or can't be read, is named") {
  const Sets sets;
  Spec spec;
  const auto lacking = [&](const fs::path& path) {
    spec.data = {{"d", path.string()}};
    return lacking_data(spec);
  };
  const std::string root = sets.folder.path().string();
  CHECK(lacking(sets.folder / "sets/mnist").empty());
  CHECK(lacking(sets.folder / "sets/words.txt").empty());
  CHECK(lacking(sets.folder / "no/such") == fmt::format("data d: {}/no/such is not there", root));
  CHECK(lacking(sets.folder / "sets/words.txt/x").ends_with("is not there"));
  fs::create_symlink("nowhere", sets.folder / "dangling");
  CHECK(lacking(sets.folder / "dangling").ends_with("is a link to nothing"));
  fs::create_symlink("sets/mnist", sets.folder / "link");
  CHECK(lacking(sets.folder / "link").empty());
  REQUIRE(::mkfifo((sets.folder / "fifo").c_str(), 0600) == 0);
  CHECK(lacking(sets.folder / "fifo").ends_with("is neither a directory nor a file"));
  spec.data = {{"a", root + "/x"}, {"b", root + "/sets/mnist"}, {"c", root + "/y"}};
  CHECK(lacking_data(spec) ==
        fmt::format("data a: {0}/x is not there, data c: {0}/y is not there", root));

  // As somebody who may not read it.
  fs::permissions(sets.folder.path(), fs::perms(0755));
  fs::permissions(sets.folder / "sets/mnist", fs::perms(0700));
  fs::permissions(sets.folder / "sets/words.txt", fs::perms(0600));
  if (::geteuid() != 0) return tests::say_left_out("as somebody who may not read it: only root can be somebody else");
  REQUIRE(::seteuid(65534) == 0);
  const std::string directory = lacking(sets.folder / "sets/mnist");
  const std::string file = lacking(sets.folder / "sets/words.txt");
  const std::string inside = lacking(sets.folder / "sets/mnist/train");
  REQUIRE(::seteuid(0) == 0);
  for (const std::string& said : {directory, file, inside}) {
    CHECK_MESSAGE(said.ends_with("can't be read: Permission denied"), said);
  }
}

TEST_CASE("a data set whose file system does not answer holds up nobody for long") {
  const test::TemporaryFolder folder;
  const fs::path at = folder / "away";
  fs::create_directory(at);
  // Nobody serves it, like the mount of a server that is gone.
  Fd server(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
  const std::string options = fmt::format("fd={},rootmode=40000,user_id=0,group_id=0", server.get());
  if (!server || ::mount("away", at.c_str(), "fuse", 0, options.c_str()) != 0) {
    return say_skipped("a file system that does not answer needs root and /dev/fuse");
  }
  Spec spec;
  spec.data = {{"x", (at / "set").string()}};
  const std::string lacking = fmt::format("data x: {}/set can't be looked at: its file system does not answer", at.string());
  CHECK(lacking_data(spec, std::chrono::milliseconds(50)) == lacking);
  CHECK(lacking_data(spec) == lacking);  // at once

  server.reset();
  REQUIRE(::umount2(at.c_str(), MNT_DETACH) == 0);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (lacking_data(spec) == lacking && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  CHECK(lacking_data(spec) == fmt::format("data x: {}/set is not there", at.string()));
}

}  // namespace
}  // namespace dtrain::runner
