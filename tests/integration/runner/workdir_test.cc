#include "runner/workdir.h"

#include <doctest/doctest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>

#include "schema/fd.h"
#include "tests/support/few_descriptors.h"
#include "tests/support/project.h"
#include "tests/support/skipped.h"

namespace dtrain::runner {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using test::write_file;

// A tree and places for views of it.
struct Host {
  Host() {
    write_file(tree / "train.py", "print()");
    write_file(tree / "pkg/m.py", "x");
    write_file(tree / "data/set", std::string(5000, 'd'));
    fs::create_symlink("pkg/m.py", tree / "link");
    fs::create_directory(tree / "empty");
    fs::permissions(tree / "train.py", fs::perms::owner_all);
    described = test::describe_tree(tree);
  }
  TemporaryFolder folder;
  fs::path tree = folder / "trees/abc";
  fs::path place = folder / "work/4.worker.1@1";
  std::string described;
};

// Whether this machine and file system can make such views.
bool possible(WorkdirKind kind) {
  Host host;
  const bool made = make_view(host.tree, host.place, kind).ok();
  REQUIRE(release_view(host.place).ok());
  if (!made) tests::say_left_out("no " + std::string(to_string(kind)) + " views here");
  return made;
}

void append(const fs::path& path, std::string_view bytes) {
  std::ofstream file(path, std::ios::app);
  file << bytes;
  REQUIRE(file.good());
}

TEST_CASE("a view is the tree, and nothing done there reaches the tree") {
  for (const auto kind : {WorkdirKind::Overlay, WorkdirKind::Reflink, WorkdirKind::Copy}) {
    if (!possible(kind)) continue;
    CAPTURE(std::string(to_string(kind)));
    Host host;
    const auto view = make_view(host.tree, host.place, kind);
    REQUIRE(view.ok());
    CHECK(view->kind == kind);
    CHECK(view->cwd == host.place / "project");
    CHECK(test::describe_tree(view->cwd) == host.described);
    CHECK(left_behind(host.place, host.tree).value() == "");

    append(view->cwd / "train.py", "# more");
    fs::permissions(view->cwd / "train.py", fs::perms::none);
    fs::remove(view->cwd / "pkg/m.py");
    fs::rename(view->cwd / "data", view->cwd / "renamed");
    fs::remove(view->cwd / "link");
    write_file(view->cwd / "pkg/new", "n");
    fs::remove_all(view->cwd / "empty");
    CHECK(fs::exists(view->cwd / "renamed/set"));
    CHECK(test::describe_tree(host.tree) == host.described);

    REQUIRE(release_view(host.place).ok());
    CHECK(!fs::exists(host.place));
    CHECK(test::describe_tree(host.tree) == host.described);
  }
}

TEST_CASE("views of one tree do not see each other") {
  Host host;
  const auto one = make_view(host.tree, host.folder / "a");
  const auto two = make_view(host.tree, host.folder / "b");
  REQUIRE(one.ok());
  REQUIRE(two.ok());
  write_file(one->cwd / "train.py", "other");
  CHECK(test::describe_tree(two->cwd) == host.described);
  CHECK(release_view(host.folder / "a").ok());
  CHECK(test::describe_tree(two->cwd) == host.described);
  CHECK(release_view(host.folder / "b").ok());
}

TEST_CASE("what a replica left is summed by name, before and after unmounting") {
  for (const auto kind : {WorkdirKind::Overlay, WorkdirKind::Copy}) {
    if (!possible(kind)) continue;
    CAPTURE(std::string(to_string(kind)));
    Host host;
    const auto view = make_view(host.tree, host.place, kind);
    REQUIRE(view.ok());
    write_file(view->cwd / "ckpt/1/model", std::string(3 << 20, 'm'));
    write_file(view->cwd / "ckpt/2/model", std::string(1 << 20, 'm'));
    write_file(view->cwd / "log.txt", std::string(1000, 'l'));
    write_file(view->cwd / "pkg/__pycache__/m.pyc", std::string(9000, 'p'));
    fs::remove(view->cwd / "data/set");
    CHECK(left_behind(host.place, host.tree).value() == "4.0 MB in ckpt/, log.txt");
    write_file(view->cwd / "a", "1");
    write_file(view->cwd / "b", "1");
    append(view->cwd / "train.py", std::string(100, '#'));
    CHECK(left_behind(host.place, host.tree).value() == "4.0 MB in ckpt/, log.txt, train.py and 2 more");
    REQUIRE(unmount_view(host.place).ok());
    CHECK(left_behind(host.place, host.tree).value() == "4.0 MB in ckpt/, log.txt, train.py and 2 more");
    CHECK(unmount_view(host.place).ok());
    REQUIRE(release_view(host.place).ok());
    CHECK(left_behind(host.place, host.tree).value() == "");
  }
}

TEST_CASE("what a replica left is listed by its paths, also when the tree is gone") {
  for (const auto kind : {WorkdirKind::Overlay, WorkdirKind::Copy}) {
    if (!possible(kind)) continue;
    CAPTURE(std::string(to_string(kind)));
    Host host;
    const auto view = make_view(host.tree, host.place, kind);
    REQUIRE(view.ok());
    write_file(view->cwd / "ckpt/1/model", std::string(30, 'm'));
    fs::create_symlink("1/model", view->cwd / "ckpt/last");
    fs::remove(view->cwd / "data/set");
    append(view->cwd / "train.py", "#");
    const auto size = fs::file_size(view->cwd / "train.py");
    REQUIRE(unmount_view(host.place).ok());
    fs::remove_all(host.tree);
    const auto left = left_files(host.place);
    REQUIRE(left.ok());
    REQUIRE(left->files.size() == 3);
    CHECK(left->files[0].path == "ckpt/1/model");
    CHECK(left->files[0].bytes == 30);
    CHECK(left->files[1].path == "ckpt/last");
    CHECK(left->files[1].link_to == "1/model");
    CHECK(left->files[2].path == "train.py");
    CHECK(left->files[2].bytes == size);
    CHECK(fs::exists(left->folder / "ckpt/1/model"));
    REQUIRE(release_view(host.place).ok());
  }
}

TEST_CASE("what is mounted in a work directory is said to be left, and nobody looks into it") {
  Host host;
  const auto view = make_view(host.tree, host.place, WorkdirKind::Copy);
  REQUIRE(view.ok());
  write_file(host.folder / "elsewhere/f", "stays");
  const fs::path at = view->cwd / "pkg/at";
  fs::create_directories(at);
  if (::mount((host.folder / "elsewhere").c_str(), at.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    return tests::say_skipped("mounting a directory needs root");
  }
  const auto left = left_behind(host.place, host.tree);
  const Status refused = release_view(host.place);
  REQUIRE(::umount2(at.c_str(), MNT_DETACH) == 0);
  CHECK(left.value() == "0 B in pkg/");
  CHECK(!refused.ok());
  CHECK(test::read_file(host.folder / "elsewhere/f") == "stays");
}

// The times that tell are a file system's own, whatever the time of day is here; where they contradict each
// other, what may have been written is not thrown away.
TEST_CASE("a copy made while somebody set the clock counts as left behind") {
  Host host;
  const auto view = make_view(host.tree, host.place, WorkdirKind::Copy);
  REQUIRE(view.ok());
  CHECK(left_behind(host.place, host.tree).value() == "");
  const fs::path copied = host.place / ".copied";
  const auto begun = fs::last_write_time(copied);
  fs::last_write_time(copied, begun + std::chrono::hours(1));
  CHECK(left_behind(host.place, host.tree).value() != "");
  fs::last_write_time(copied, begun - std::chrono::hours(1));
  CHECK(left_behind(host.place, host.tree).value() == "");
  fs::remove(copied);
  CHECK(left_behind(host.place, host.tree).value() != "");
}

TEST_CASE("without descriptors to compare with, no file counts as left behind") {
  Host host;
  const auto view = make_view(host.tree, host.place, WorkdirKind::Copy);
  REQUIRE(view.ok());
  const auto left = [&] { return left_behind(host.place, host.tree); };
  // The view's tops are two, those of a folder below it two more.
  for (rlim_t few = 0; few < 4; ++few) {
    CAPTURE(few);
    const auto answer = [&] {
      const test::FewDescriptors now(few);
      return left();
    }();
    REQUIRE(!answer.ok());
    CHECK(answer.error().code == Code::ResourceExhausted);
  }
  {
    const test::FewDescriptors enough(4);
    CHECK(left().value() == "");
  }
  write_file(view->cwd / "log.txt", "written");
  CHECK(left().value() == "7 B in log.txt");
  CHECK(release_view(host.place).ok());
}

TEST_CASE("an open file does not keep a view from being released") {
  Host host;
  const auto view = make_view(host.tree, host.place);
  REQUIRE(view.ok());
  std::ifstream held(view->cwd / "train.py");
  std::string line;
  REQUIRE(std::getline(held, line));
  CHECK(release_view(host.place).ok());
  CHECK(!fs::exists(host.place));
  CHECK(test::describe_tree(host.tree) == host.described);
}

TEST_CASE("a release needs the path only, may come twice, and takes half-made views") {
  Host host;
  CHECK(release_view(host.place).ok());
  write_file(host.place / "upper/x", "of a runner that died");
  write_file(host.place / "project/y", "");
  CHECK(release_view(host.place).ok());
  CHECK(!fs::exists(host.place));
}

TEST_CASE("what can't be made says so, and leaves nothing") {
  Host host;
  write_file(host.place / "taken", "");
  CHECK(make_view(host.tree, host.place).error().code == Code::AlreadyExists);
  CHECK(fs::exists(host.place / "taken"));
  const auto no_tree = make_view(host.folder / "nowhere", host.folder / "v", WorkdirKind::Copy);
  CHECK(no_tree.error().code == Code::NotFound);
  CHECK(!fs::exists(host.folder / "v"));
}

TEST_CASE("DTRAIN_WORKDIR asks for a kind") {
  Host host;
  REQUIRE(::setenv("DTRAIN_WORKDIR", "copy", 1) == 0);
  const auto copy = make_view(host.tree, host.place);
  REQUIRE(::setenv("DTRAIN_WORKDIR", "magic", 1) == 0);
  const auto magic = make_view(host.tree, host.folder / "m");
  REQUIRE(::unsetenv("DTRAIN_WORKDIR") == 0);
  REQUIRE(copy.ok());
  CHECK(copy->kind == WorkdirKind::Copy);
  CHECK(magic.error().message == "DTRAIN_WORKDIR='magic'");
  CHECK(release_view(host.place).ok());
}

TEST_CASE("a home with characters that overlays can't have gets another kind") {
  Host host;
  const fs::path place = host.folder / "odd:name,with\"all/v";
  const auto view = make_view(host.tree, place);
  REQUIRE(view.ok());
  CHECK(view->kind != WorkdirKind::Overlay);
  CHECK(test::describe_tree(view->cwd) == host.described);
  CHECK(release_view(place).ok());
}

}  // namespace
}  // namespace dtrain::runner
