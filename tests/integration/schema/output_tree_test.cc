#include "schema/output_tree.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "schema/fd.h"
#include "tests/support/project.h"
#include "tests/support/skipped.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> paths(const std::vector<pb::OutputEntry>& entries) {
  std::vector<std::string> all;
  for (const pb::OutputEntry& entry : entries) all.push_back(entry.path());
  return all;
}

pb::OutputEntry file(const std::string& path, uint64_t size, uint32_t mode = 0644) {
  pb::OutputEntry entry;
  entry.set_path(path);
  entry.set_mode(mode);
  entry.set_size(size);
  entry.set_mtime_ns(1'700'000'000'123'456'789);
  return entry;
}
pb::OutputEntry directory(const std::string& path) {
  pb::OutputEntry entry;
  entry.set_path(path);
  entry.set_kind(pb::Entry::DIRECTORY);
  return entry;
}
pb::OutputEntry link(const std::string& path, const std::string& target) {
  pb::OutputEntry entry;
  entry.set_path(path);
  entry.set_kind(pb::Entry::SYMLINK);
  entry.set_target(target);
  return entry;
}

Status put(const OutputTree& tree, const pb::OutputEntry& entry, std::string_view bytes) {
  TRY(UnnamedOutput coming, tree.create());
  TRY(coming.append(bytes));
  return coming.give_name(entry);
}

struct Outputs {
  test::TemporaryFolder folder;
  fs::path root = folder / "4";
  OutputTree tree = [this] {
    fs::create_directories(root);
    return OutputTree::open(root).value();
  }();
};

TEST_CASE("a tree of outputs lists files, directories and links, and says what it leaves out") {
  Outputs outputs;
  test::write_file(outputs.root / "a/b", "12345");
  test::write_file(outputs.root / ".dtrain-state/x", "of this host");
  test::write_file(outputs.root / "a/.dtrain-kept", "");
  fs::create_symlink("a/b", outputs.root / "newest");
  fs::create_symlink("/etc/passwd", outputs.root / "out");
  fs::create_symlink("../../x", outputs.root / "a/up");
  REQUIRE(::mkfifo((outputs.root / "pipe").c_str(), 0600) == 0);
  std::vector<OutputTree::LeftOut> left_out;
  const auto listed = outputs.tree.list(&left_out);
  REQUIRE(listed.ok());
  CHECK(paths(*listed) == std::vector<std::string>{"a", "a/.dtrain-kept", "a/b", "newest"});
  CHECK((*listed)[2].size() == 5);
  CHECK((*listed)[3].target() == "a/b");
  std::vector<std::string> whys;
  for (const auto& each : left_out) whys.push_back(each.why);
  CHECK(whys == std::vector<std::string>{"'out' is a link that leads out", "'pipe' is no file", "'a/up' is a link that leads out"});
  CHECK(left_out[2].path == "a/up");
}

TEST_CASE("a file has its name, its mode and its time at once, and no name before") {
  Outputs outputs;
  {
    auto coming = outputs.tree.create();
    REQUIRE(coming.ok());
    REQUIRE(coming->append("123").ok());
    CHECK(outputs.tree.list()->empty());
    REQUIRE(coming->append("45").ok());
    REQUIRE(coming->give_name(file("deep/er/it", 5, 0755)).ok());
  }
  const auto listed = outputs.tree.list();
  CHECK(paths(*listed) == std::vector<std::string>{"deep", "deep/er", "deep/er/it"});
  CHECK(same_output((*listed)[2], file("deep/er/it", 5, 0755)));
  CHECK(test::read_file(outputs.root / "deep/er/it") == "12345");
  { CHECK(outputs.tree.create()->append("lost").ok()); }
  CHECK(paths(*outputs.tree.list()).size() == 3);
  CHECK(std::distance(fs::directory_iterator(outputs.root), {}) == 1);
}

TEST_CASE("nothing is left of a file whose process was killed before it had its name") {
  Outputs outputs;
  if (const Fd tried(::open(outputs.root.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0600)); !tried) {
    return dtrain::tests::say_skipped("the file system has no files without a name");
  }
  const pid_t child = ::fork();
  if (child == 0) {
    const auto coming = outputs.tree.create();
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status));
  CHECK(fs::is_empty(outputs.root));
}

TEST_CASE("what has a path is replaced, whatever it is") {
  Outputs outputs;
  REQUIRE(put(outputs.tree, file("x/y", 1), "1").ok());
  REQUIRE(put(outputs.tree, file("x", 2), "22").ok());
  CHECK(test::read_file(outputs.root / "x") == "22");
  REQUIRE(put(outputs.tree, file("x/y/z", 3), "333").ok());
  CHECK(test::read_file(outputs.root / "x/y/z") == "333");
  REQUIRE(outputs.tree.make(link("x", "z")).ok());
  CHECK(fs::read_symlink(outputs.root / "x") == "z");
  REQUIRE(outputs.tree.make(directory("x")).ok());
  CHECK(fs::is_directory(outputs.root / "x"));
  REQUIRE(outputs.tree.make(directory("x")).ok());
}

TEST_CASE("nothing outside of the tree is touched, whoever says the names") {
  Outputs outputs;
  test::write_file(outputs.folder / "else/secret", "old");
  fs::create_symlink(outputs.folder / "else", outputs.root / "way");
  for (const std::string& path : std::vector<std::string>{"", "/etc/x", "../else/secret", "a/../../x", "a//b", "a/", ".", std::string("a\0b", 3), ".dtrain-unnamed-1"}) {
    CAPTURE(path);
    CHECK(!put(outputs.tree, file(path, 1), "1").ok());
    CHECK(!outputs.tree.make(directory(path)).ok());
    CHECK(!outputs.tree.open_file(path).ok());
    CHECK(!outputs.tree.look(path).ok());
  }
  CHECK(outputs.tree.open_file("way/secret").error().code == Code::NotFound);
  CHECK(outputs.tree.remove(file("way/secret", 3)).ok());   // a directory `way` is not there
  // What is in the way of a directory goes, and not what it leads to.
  REQUIRE(put(outputs.tree, file("way/secret", 3), "new").ok());
  CHECK(test::read_file(outputs.folder / "else/secret") == "old");
  CHECK(test::read_file(outputs.root / "way/secret") == "new");
  CHECK(!outputs.tree.make(link("l", "../else")).ok());
  CHECK(!outputs.tree.make(link("l", "/etc")).ok());
  CHECK(!outputs.tree.make(link("l", "")).ok());
  CHECK(outputs.tree.make(link("d/l", "../x")).ok());
}

TEST_CASE("a file that came with another size is not taken") {
  Outputs outputs;
  CHECK(put(outputs.tree, file("x", 5), "1234").error().code == Code::InvalidArgument);
  CHECK(outputs.tree.list()->empty());
}

TEST_CASE("only what is as it was said to be is removed") {
  Outputs outputs;
  REQUIRE(put(outputs.tree, file("d/x", 1), "1").ok());
  REQUIRE(outputs.tree.remove(file("d/x", 2)).ok());
  REQUIRE(outputs.tree.remove(directory("d")).ok());   // is not empty
  CHECK(fs::exists(outputs.root / "d/x"));
  REQUIRE(outputs.tree.remove(file("d/x", 1)).ok());
  REQUIRE(outputs.tree.remove(directory("d")).ok());
  CHECK(outputs.tree.list()->empty());
  CHECK(outputs.tree.remove(file("d/x", 1)).ok());
}

TEST_CASE("what another process was creating goes, and nothing of this one does") {
  Outputs outputs;
  test::write_file(outputs.root / ".dtrain-unnamed-0123", "half");
  auto coming = outputs.tree.create();
  outputs.tree.remove_unnamed();
  CHECK(!fs::exists(outputs.root / ".dtrain-unnamed-0123"));
  REQUIRE(coming->append("1").ok());
  CHECK(coming->give_name(file("x", 1)).ok());
}

TEST_CASE("times before 1970 and far from now are kept, or as near as it goes") {
  Outputs outputs;
  for (const auto& [name, seconds] : {std::pair("early", -315'619'200L), std::pair("late", 32'503'680'000L)}) {
    test::write_file(outputs.root / "from", "1");
    const timespec then[] = {{seconds, 500'000'000}, {seconds, 500'000'000}};
    REQUIRE(::utimensat(AT_FDCWD, (outputs.root / "from").c_str(), then, 0) == 0);
    pb::OutputEntry entry = *outputs.tree.look("from");
    entry.set_path(name);
    REQUIRE(put(outputs.tree, entry, "1").ok());
    CHECK(same_output(*outputs.tree.look(name), entry));
  }
  struct stat st {};
  REQUIRE(::stat((outputs.root / "early").c_str(), &st) == 0);
  CHECK(st.st_mtim.tv_sec == -315'619'200);
  CHECK(st.st_mtim.tv_nsec == 500'000'000);
}

TEST_CASE("a file that is opened is the one that its entry tells of, whatever has its name by then") {
  Outputs outputs;
  REQUIRE(put(outputs.tree, file("model", 3), "old").ok());
  const auto opened = outputs.tree.open_file("model");
  REQUIRE(opened.ok());
  pb::OutputEntry newer = file("model", 3);
  newer.set_mtime_ns(newer.mtime_ns() + 1);
  REQUIRE(put(outputs.tree, newer, "new").ok());
  CHECK(same_output(opened->entry, file("model", 3)));
  char bytes[3];
  REQUIRE(::read(opened->fd.get(), bytes, 3) == 3);
  CHECK(std::string(bytes, 3) == "old");
}

TEST_CASE("a link that goes through another one and back leads out") {
  Outputs outputs;
  CHECK(!outputs.tree.make(link("m", "a/s/../../x")).ok());
  CHECK(!outputs.tree.make(link("a/b/m", "../c/..")).ok());
  CHECK(outputs.tree.make(link("a/b/m", "../../c")).ok());
  CHECK(outputs.tree.make(link("a/b/n", "..")).ok());
  CHECK(outputs.tree.make(link("dots", "..x/...y")).ok());
}

TEST_CASE("what lies too deep is refused, and left out of a list") {
  Outputs outputs;
  std::string deep = "x";
  for (int i = 0; i < 300; ++i) deep += "/x";
  CHECK(put(outputs.tree, file(deep, 1), "1").error().code == Code::InvalidArgument);
  CHECK(put(outputs.tree, file(std::string(300, 'x'), 1), "1").error().code == Code::InvalidArgument);
  fs::path at = outputs.root;
  for (int i = 0; i < 260; ++i) at /= "d";
  fs::create_directories(at);
  std::vector<OutputTree::LeftOut> left_out;
  CHECK(outputs.tree.list(&left_out)->size() == 256);
  CHECK(left_out.size() == 1);
}

}  // namespace
}  // namespace dtrain
