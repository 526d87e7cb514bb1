#include "schema/snapshot.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

#include "schema/access_key.h"
#include "schema/file_hash.h"
#include "schema/stat_cache.h"
#include "tests/support/project.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using test::write_file;

Snapshot snapshot_of(const fs::path& root, const fs::path& cache = {}) {
  SnapshotOptions options;
  options.stat_cache = cache;
  auto taken = take_snapshot(root, options);
  if (!taken.ok()) FAIL(taken.error().message);
  return std::move(taken).value();
}

Error refusal(const fs::path& root, const SnapshotOptions& options = {}) {
  auto taken = take_snapshot(root, options);
  REQUIRE(!taken.ok());
  return taken.error();
}

// The paths of a snapshot, in its order.
std::string paths_of(const Snapshot& snapshot) {
  std::string text;
  std::string_view rest = snapshot.manifest_bytes;
  for (ManifestEntry entry; read_entry(rest, entry);) text += std::string(entry.path) + ' ';
  return text;
}

// Writes the snapshot again through what travels: the blobs as they are sent.
void write_again(const fs::path& root, const Snapshot& snapshot, const fs::path& target) {
  const auto manifest = parse_manifest(snapshot.manifest_bytes);
  REQUIRE(manifest.ok());
  CHECK(manifest->SerializeAsString() == snapshot.manifest_bytes);
  SnapshotBlobs blobs(root, snapshot);
  BlobDecoder decoder;
  const Status written =
      materialise(*manifest, target, [&](const Sha256& name, uint64_t size, int fd) -> Status {
        decoder.begin(name, size, fd);
        TRY(blobs.send(name, [&](std::string_view part, bool) { return decoder.add(part); }));
        return decoder.finish();
      });
  if (!written.ok()) FAIL(written.error().message);
}

TEST_CASE("a tree comes back exactly: odd names, modes, empty directories, links") {
  const TemporaryFolder folder;
  const fs::path root = folder / "project";
  write_file(root / "-rf", "a leading dash");
  write_file(root / "with space\tand\nnewline", "x");
  write_file(root / "\xff\xfe not UTF-8", "y");
  write_file(root / "ünïcödé/ファイル", "z");
  write_file(root / "riseml.yml", "project: x\n");
  write_file(root / "empty", "");
  write_file(root / "run.sh", "#!/bin/sh\n");
  write_file(root / "a-b", "sorts after a/b");
  write_file(root / "a/b", "");
  fs::create_directories(root / "empty dir/below");
  fs::create_symlink("a/b", root / "link");
  fs::create_symlink("../a-b", root / "a/up");
  fs::create_symlink("nowhere", root / "dangling");
  REQUIRE(::chmod((root / "run.sh").c_str(), 0755) == 0);
  REQUIRE(::chmod((root / "empty").c_str(), 0400) == 0);
  REQUIRE(::chmod((root / "empty dir").c_str(), 0500) == 0);

  const Snapshot snapshot = snapshot_of(root);
  CHECK(snapshot.notices.empty());
  CHECK(snapshot.file_count == 9);
  write_again(root, snapshot, folder / "again");
  CHECK(test::describe_tree(folder / "again") == test::describe_tree(root));
  CHECK(snapshot_of(folder / "again").root == snapshot.root);
}

TEST_CASE("the same content has the same name, whatever its times, owner and place") {
  const TemporaryFolder folder;
  write_file(folder / "one/a/x", "1");
  write_file(folder / "two/a/x", "1");
  test::make_old(folder / "two/a/x");
  CHECK(snapshot_of(folder / "one").root == snapshot_of(folder / "two").root);
  write_file(folder / "two/a/x", "2");
  CHECK(snapshot_of(folder / "one").root != snapshot_of(folder / "two").root);
}

TEST_CASE("ignore files decide what is in, and explain says why") {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  for (const char* name : {"train.py",
                           "a.o",
                           "data/big.csv",
                           "data/small.csv",
                           "data/sub/x",
                           "sub/keep.log",
                           "sub/other.log",
                           "top.log",
                           "env/pyvenv.cfg",
                           "env/lib/x.py",
                           "kept/pyvenv.cfg",
                           "runs/1/out",
                           "pkg/__pycache__/m.pyc",
                           "pkg/m.py",
                           ".git/config",
                           "vendored/.git",
                           "wandb/x",
                           "build/x",
                           "src/build/x",
                           "riseml_1.yml"}) {
    write_file(root / name, name);
  }
  write_file(root / ".gitignore", "*.o\n*.log\ndata/\n/build/\n");
  write_file(root / "sub/.gitignore", "!keep.log\n");
  write_file(root / ".risemlignore", "riseml_1.yml\n");
  write_file(root / ".dtrainignore", "!data/small.csv\n!kept/\n!riseml_1.yml\n");

  std::map<std::string, std::string> out;
  SnapshotOptions options;
  options.explain = [&](const SyncDecision& decision) {
    if (!decision.included) out[decision.path] = decision.why;
  };
  const auto taken = take_snapshot(root, options);
  REQUIRE(taken.ok());
  CHECK(paths_of(*taken) ==
        ".dtrainignore .gitignore .risemlignore data data/small.csv kept kept/pyvenv.cfg pkg "
        "pkg/m.py riseml_1.yml src src/build src/build/x sub sub/.gitignore sub/keep.log train.py "
        "vendored ");
  CHECK(out["a.o"] == ".gitignore:1 '*.o'");
  CHECK(out["data"] == ".gitignore:3 'data/'");
  CHECK(out["data/big.csv"] == ".gitignore:3 'data/'");
  CHECK(out["build"] == ".gitignore:4 '/build/'");
  CHECK(out["env"] == "a virtual environment");
  CHECK(out["runs"] == "outputs of earlier runs");
  CHECK(out["pkg/__pycache__"] == "Python's bytecode cache");
  CHECK(out[".git"] == ".git never travels");
  CHECK(out.contains("vendored/.git"));
  REQUIRE(taken->notices.size() == 2);
  CHECK(taken->notices[0].text ==
        "left out by default: 'env/', 'pkg/__pycache__/', 'runs/', 'wandb/'; a line !NAME/ in "
        ".dtrainignore takes one in");
  CHECK(taken->notices[1].text == "left out by .gitignore: 'build/'; a line !NAME/ in .dtrainignore takes one in");
}

TEST_CASE("keys that dtrain wrote stay out unless they are asked for, and no other file of such a name does") {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  const auto key = [](KeyOf of) { return to_text({.of = of, .name = "anna", .daemon = "10.0.0.1:7077", .authority = "", .certificate = "", .secret = ""}); };
  write_file(root / "anna.key", key(KeyOf::User));
  write_file(root / "sub/gpu1.key", key(KeyOf::Host));
  write_file(root / "own.key", "a sonata");
  write_file(root / "empty.key", "");
  write_file(root / "anna.txt", key(KeyOf::User));
  std::map<std::string, std::string> out;
  SnapshotOptions options;
  options.explain = [&](const SyncDecision& decision) {
    if (!decision.included) out[decision.path] = decision.why;
  };
  auto taken = take_snapshot(root, options);
  REQUIRE(taken.ok());
  CHECK(paths_of(*taken) == "anna.txt empty.key own.key sub ");
  CHECK(out["anna.key"] == "a key to a daemon, which is secret");
  REQUIRE(taken->notices.size() == 1);
  CHECK(taken->notices[0].text == "left out, being keys to a daemon, which are secret: 'anna.key', 'sub/gpu1.key'");
  write_file(root / ".dtrainignore", "!anna.key\n");
  taken = take_snapshot(root, options);
  REQUIRE(taken.ok());
  CHECK(paths_of(*taken) == ".dtrainignore anna.key anna.txt empty.key own.key sub ");
}

TEST_CASE("runs/ that holds links to outputs alone is no news, wherever it lies") {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  write_file(root / "sub/dtrain.yml", "");
  for (const char* runs : {"runs", "sub/runs", "mine/runs"}) {
    fs::create_directories(root / runs);
    fs::create_symlink("/nowhere", root / runs / "1");
  }
  write_file(root / "mine/runs/loader.py", "");
  const Snapshot snapshot = snapshot_of(root);
  CHECK(paths_of(snapshot) == "mine mine/runs mine/runs/1 mine/runs/loader.py sub sub/dtrain.yml ");
  REQUIRE(snapshot.notices.size() == 1);
  CHECK(snapshot.notices[0].text.find("'mine/runs/1 -> /nowhere'") != std::string::npos);
  write_file(root / "runs/plot.png", "");
  CHECK(snapshot_of(root).notices[0].text.starts_with("left out by default: 'runs/'"));
}

TEST_CASE("what a dtrain keeps within the project stays out, and is no project itself") {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  write_file(root / "x", "");
  write_file(root / "near/daemon.lock", "");  // a name alone says nothing
  write_file(root / "state/home/daemon.lock", "");
  write_file(root / "state/home/blobs/2.tmp", "");
  write_file(root / ".dtrainignore", "!state/home/\n");
  CHECK(paths_of(snapshot_of(root)) == ".dtrainignore near near/daemon.lock state x ");
  const Error error = refusal(root / "state/home");
  CHECK(error.code == Code::InvalidArgument);
  CHECK(error.message.find("is a DTRAIN_HOME") != std::string::npos);
}

TEST_CASE("what is remembered of a sync is not synced, where it lies in the project") {
  const TemporaryFolder folder;
  const fs::path root = folder.path();
  write_file(root / "x", "");
  fs::create_directories(root / "state/sync");
  for (int syncs = 0; syncs < 3; ++syncs) {
    CHECK(paths_of(snapshot_of(root, root / "state/sync/0123")) == "state x ");
    CHECK(fs::exists(root / "state/sync/0123"));
  }
}

TEST_CASE("links: out of the project is refused, absolute is kept and said") {
  const TemporaryFolder folder;
  const fs::path root = folder / "p";
  write_file(root / "x", "");
  fs::create_symlink("/mnt/data", root / "data");
  const Snapshot snapshot = snapshot_of(root);
  REQUIRE(snapshot.notices.size() == 1);
  CHECK(snapshot.notices[0].text.find("'data -> /mnt/data'") != std::string::npos);
  fs::create_symlink("../../etc", root / "escape");
  const Error error = refusal(root);
  CHECK(error.code == Code::InvalidArgument);
  CHECK(error.message == "'escape' is a link out of the project: '../../etc'");
  CHECK(error.hint.find(".dtrainignore") != std::string::npos);
  write_file(root / ".dtrainignore", "escape\n");
  CHECK(take_snapshot(root, {}).ok());
}

TEST_CASE("all that is refused is told at once, and more than anybody reads is not") {
  const TemporaryFolder folder;
  const fs::path root = folder / "p";
  write_file(root / "a/fine", "");
  fs::create_symlink("../../etc", root / "a/escape");
  fs::create_symlink("../etc", root / "z");
  CHECK(refusal(root).message == "'a/escape' is a link out of the project: '../../etc'; 'z' is a link out of the project: '../etc'");
  SnapshotOptions explaining;
  std::vector<std::string> seen;
  explaining.explain = [&](const SyncDecision& decision) { seen.push_back((decision.included ? "" : "not ") + decision.path); };
  CHECK(!explain_snapshot(root, explaining).ok());
  CHECK(seen == std::vector<std::string>{"a", "not a/escape", "a/fine", "not z"});
  for (int i = 0; i < 100; ++i) fs::create_symlink("../etc", root / fmt::format("l{}", i));
  CHECK(std::ranges::count(refusal(root).message, ';') == 19);
}

TEST_CASE("what is no file, directory or link stays out with a notice") {
  const TemporaryFolder folder;
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  const int listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, (folder / "socket").c_str(), sizeof address.sun_path - 1);
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  ::close(listener);
  write_file(folder / "file", "x");
  const Snapshot snapshot = snapshot_of(folder.path());
  CHECK(paths_of(snapshot) == "file ");
  REQUIRE(snapshot.notices.size() == 1);
  CHECK(snapshot.notices[0].text == "left out, being sockets, fifos or devices: 'pipe', 'socket'");
}

TEST_CASE("limits are refused with what to do") {
  const TemporaryFolder folder;
  write_file(folder / "big.bin", "123456");
  write_file(folder / "small", "1");
  SnapshotOptions options;
  options.limits.file_bytes_max = 5;
  options.limits.how_to_raise = ", or raise it";
  Error error = refusal(folder.path(), options);
  CHECK(error.code == Code::ResourceExhausted);
  CHECK(error.message == "'big.bin' has 6 B: one file may have 5 B");
  CHECK(error.hint.ends_with(", or raise it"));
  options.limits = {};
  options.limits.entries_max = 1;
  error = refusal(folder.path(), options);
  CHECK(error.code == Code::ResourceExhausted);
  CHECK(error.message.find("more than 1 files") != std::string::npos);
  CHECK(refusal(folder / "nowhere").code == Code::NotFound);
  CHECK(refusal(folder / "small").message.find("Not a directory") != std::string::npos);
}

TEST_CASE("a file nobody may read is named") {
  const TemporaryFolder folder;
  write_file(folder / "sub/secret", "x");
  REQUIRE(::chmod((folder / "sub/secret").c_str(), 0) == 0);
  const uid_t me = ::geteuid();
  if (me == 0) {  // root may read everything: be someone else for a moment
    REQUIRE(::chmod(folder.path().c_str(), 0755) == 0);
    REQUIRE(::seteuid(65534) == 0);
  }
  const auto taken = take_snapshot(folder.path(), {});
  REQUIRE(::seteuid(me) == 0);
  REQUIRE(!taken.ok());
  CHECK(taken.error().code == Code::PermissionDenied);
  CHECK(taken.error().message == "can't read 'sub/secret': Permission denied");
  CHECK(taken.error().hint.find("chmod") != std::string::npos);
}

TEST_CASE("the largest entries of the top come first") {
  const TemporaryFolder folder;
  write_file(folder / "data/a/x", std::string(3000, 'x'));
  write_file(folder / "data/b", std::string(2000, 'x'));
  write_file(folder / "model.bin", std::string(4000, 'x'));
  write_file(folder / "train.py", "x");
  SnapshotOptions options;
  ProjectSize seen;
  options.before_reading = [&](const ProjectSize& project) {
    seen = project;
    return ok();
  };
  REQUIRE(take_snapshot(folder.path(), options).ok());
  CHECK(seen.total_bytes == 9001);
  CHECK(seen.file_count == 4);
  REQUIRE(seen.largest.size() == 3);
  CHECK(seen.largest[0] == std::pair<std::string, uint64_t>("data/", 5000));
  CHECK(seen.largest[1] == std::pair<std::string, uint64_t>("model.bin", 4000));
}

// ---- the stat cache

// Times long ago are trusted; the change time can't be set, so tests ask the walk for its own
// clock.
void wait_for_the_clock() {
  // The file clock ticks every few milliseconds: once it is past the slack, files count as settled.
  const int64_t start = file_clock_ns();
  while (file_clock_ns() < start + 30'000'000) std::this_thread::yield();
}

TEST_CASE("a second walk reads nothing, a changed file alone is read again") {
  const TemporaryFolder folder;
  const fs::path root = folder / "p";
  const fs::path cache = folder / "cache";
  for (int i = 0; i < 50; ++i)
    write_file(root / fmt::format("d{}/f{}", i % 5, i), std::to_string(i));
  write_file(root / "exe", "x");
  wait_for_the_clock();

  const Snapshot first = snapshot_of(root, cache);
  CHECK(first.hashed_count == 51);
  const Snapshot second = snapshot_of(root, cache);
  CHECK(second.hashed_count == 0);
  CHECK(second.root == first.root);
  CHECK(second.manifest_bytes == first.manifest_bytes);
  CHECK(second.total_bytes == first.total_bytes);
  CHECK(second.file_count == first.file_count);

  write_file(root / "d3/f3", "new");
  const Snapshot third = snapshot_of(root, cache);
  CHECK(third.hashed_count == 1);
  CHECK(third.root == snapshot_of(root).root);
  CHECK(third.root != first.root);
}

TEST_CASE("every kind of change is seen through the cache") {
  const TemporaryFolder folder;
  const fs::path root = folder / "p";
  const fs::path cache = folder / "cache";
  const auto same_as_without = [&] {
    const Snapshot with = snapshot_of(root, cache);
    CHECK(with.manifest_bytes == snapshot_of(root).manifest_bytes);
    CHECK(with.root == sha256(with.manifest_bytes));
    wait_for_the_clock();
  };
  write_file(root / "a/one", "1");
  write_file(root / "b/two", "2");
  write_file(root / "c", "3");
  fs::create_symlink("c", root / "link");
  wait_for_the_clock();
  same_as_without();
  SUBCASE("added") {
    write_file(root / "a/zero", "0");
  }
  SUBCASE("added directory") {
    fs::create_directory(root / "aa");
  }
  SUBCASE("removed") {
    fs::remove(root / "a/one");
  }
  SUBCASE("removed last") {
    fs::remove(root / "link");
  }
  SUBCASE("renamed") {
    fs::rename(root / "a", root / "z");
  }
  SUBCASE("mode") {
    ::chmod((root / "c").c_str(), 0755);
  }
  SUBCASE("directory's mode") {
    ::chmod((root / "a").c_str(), 0700);
  }
  SUBCASE("link's target") {
    fs::remove(root / "link");
    fs::create_symlink("a", root / "link");
  }
  SUBCASE("file becomes directory") {
    fs::remove(root / "c");
    write_file(root / "c/below", "x");
  }
  SUBCASE("directory becomes file") {
    fs::remove_all(root / "a");
    write_file(root / "a", "x");
  }
  SUBCASE("same size, same modification time") {
    test::make_old(root / "c");
    same_as_without();
    write_file(root / "c", "X");
    test::make_old(root / "c");
  }
  SUBCASE("now ignored") {
    write_file(root / ".gitignore", "b/\n");
  }
  same_as_without();
  same_as_without();
}

TEST_CASE("a file written in the tick of the walk is hashed again") {
  const TemporaryFolder folder;
  const fs::path root = folder / "p";
  const fs::path cache = folder / "cache";
  // Same size each time: only content tells. Without the guard a change within one tick of the
  // file clock would go unseen.
  for (int i = 0; i < 200; ++i) {
    write_file(root / "f", i % 2 == 0 ? "even" : "odd!");
    CHECK(snapshot_of(root, cache).root == snapshot_of(root).root);
  }
}

TEST_CASE("a cache that is damaged, cut or another's costs time, never correctness") {
  const TemporaryFolder folder;
  const fs::path root = folder / "p";
  const fs::path cache = folder / "cache";
  for (int i = 0; i < 5; ++i) write_file(root / std::to_string(i), std::to_string(i));
  wait_for_the_clock();
  const Sha256 right = snapshot_of(root, cache).root;
  const std::string good = test::read_file(cache);
  for (size_t at = 0; at < good.size(); at += 3) {
    std::string damaged = good;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x41);
    write_file(cache, damaged);
    CHECK(snapshot_of(root, cache).root == right);
    write_file(cache, good.substr(0, at));
    CHECK(snapshot_of(root, cache).root == right);
  }
  write_file(cache, good + "more");
  CHECK(snapshot_of(root, cache).root == right);
  // Of another project.
  write_file(folder / "q/3", "other");
  write_file(cache, good);
  CHECK(snapshot_of(folder / "q", cache).root == snapshot_of(folder / "q").root);
  // Where none can be written.
  CHECK(snapshot_of(root, folder / "no such folder/cache").root == right);
}

// ---- files that change

TEST_CASE("a file that changes while it is read is read again, and not without end") {
  const TemporaryFolder folder;
  const fs::path path = folder / "f";
  write_file(path, "0");
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat st {};
  int changes_left = 2;
  // The progress call comes in the middle of a pass, or at its end at the latest.
  FileHash hash([&](uint64_t) {
    if (changes_left > 0) write_file(path, std::string(static_cast<size_t>(changes_left--), 'x'));
  });
  const auto digest = hash.hash(fd, "f", st);
  REQUIRE(digest.ok());
  CHECK(*digest == sha256("x"));
  CHECK(st.st_size == 1);

  changes_left = 1000;
  const auto never = hash.hash(fd, "f", st);
  REQUIRE(!never.ok());
  CHECK(never.error().code == Code::Aborted);
  CHECK(never.error().message == "'f' keeps changing while it is read");
  CHECK(never.error().hint.find(".dtrainignore") != std::string::npos);
  CHECK(changes_left > 900);
  changes_left = 0;
  CHECK(hash.hash(fd, "f", st).ok());
  ::close(fd);
}

TEST_CASE("a file that changed after the walk is not sent as what it was") {
  const TemporaryFolder folder;
  write_file(folder / "f", "before");
  const Snapshot snapshot = snapshot_of(folder.path());
  write_file(folder / "f", "after!");
  SnapshotBlobs blobs(folder.path(), snapshot);
  const auto ignore = [](std::string_view, bool) { return ok(); };
  const Status sent = blobs.send(sha256("before"), ignore);
  REQUIRE(!sent.ok());
  CHECK(sent.error().code == Code::Aborted);
  CHECK(sent.error().message == "'f': changed while it was read");
  CHECK(blobs.send(sha256("nobody's"), ignore).error().code == Code::NotFound);
  CHECK(*blobs.size(sha256("before")) == 6);
  CHECK(*blobs.size(snapshot.root) == snapshot.manifest_bytes.size());
  CHECK(blobs.send(snapshot.root, ignore).ok());
  fs::remove(folder / "f");
  const Status gone = blobs.send(sha256("before"), ignore);
  REQUIRE(!gone.ok());
  CHECK(gone.error().code == Code::Aborted);
  CHECK(gone.error().message == "'f' was there and is gone");
}

}  // namespace
}  // namespace dtrain
