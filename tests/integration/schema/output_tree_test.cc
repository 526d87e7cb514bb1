#include "schema/output_tree.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "tests/support/project.h"

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
  std::vector<std::string> left_out;
  const auto listed = outputs.tree.list(&left_out);
  REQUIRE(listed.ok());
  CHECK(paths(*listed) == std::vector<std::string>{"a", "a/.dtrain-kept", "a/b", "newest"});
  CHECK((*listed)[2].size() == 5);
  CHECK((*listed)[3].target() == "a/b");
  CHECK(left_out == std::vector<std::string>{"'out' is a link that leads out", "'pipe' is no file", "'a/up' is a link that leads out"});
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

TEST_CASE("what somebody was creating when he was killed goes after a while, and nothing else does") {
  Outputs outputs;
  test::write_file(outputs.root / ".dtrain-unnamed-old", "half");
  test::make_old(outputs.root / ".dtrain-unnamed-old");
  test::write_file(outputs.root / ".dtrain-unnamed-new", "half");
  outputs.tree.remove_unnamed();
  CHECK(!fs::exists(outputs.root / ".dtrain-unnamed-old"));
  CHECK(fs::exists(outputs.root / ".dtrain-unnamed-new"));
}

}  // namespace
}  // namespace dtrain
