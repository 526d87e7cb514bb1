#include "schema/materialise.h"

#include <doctest/doctest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "schema/manifest.h"
#include "tests/support/project.h"
#include "tests/support/skipped.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using test::write_file;

pb::Manifest manifest_with(std::initializer_list<ManifestEntry> entries) {
  std::string bytes;
  for (const ManifestEntry& entry : entries) append_entry(bytes, entry);
  pb::Manifest manifest;
  REQUIRE(manifest.ParseFromString(bytes));
  return manifest;
}

const std::string kDigest(32, '\x5a');

Status write_hello(const Sha256&, uint64_t, int fd) {
  REQUIRE(::write(fd, "hello", 5) == 5);
  return ok();
}

TEST_CASE("modes are the manifest's, whatever the umask") {
  const TemporaryFolder folder;
  const auto manifest = manifest_with({{"d", pb::Entry::DIRECTORY, 0555, 0, "", "", ""},
                                       {"d/f", pb::Entry::FILE, 0666, 5, kDigest, "", ""},
                                       {"x", pb::Entry::FILE, 0777, 5, kDigest, "", ""}});
  const mode_t before = ::umask(0077);
  CHECK(materialise(manifest, folder / "t", write_hello).ok());
  ::umask(before);
  CHECK(test::describe_tree(folder / "t") == "d/ 555\nd/f 666 hello\nx 777 hello\n");
}

TEST_CASE("a target that is there is left alone") {
  const TemporaryFolder folder;
  write_file(folder / "t/mine", "x");
  fs::create_symlink("nowhere", folder / "dangling");
  const auto manifest = manifest_with({{"f", pb::Entry::FILE, 0644, 5, kDigest, "", ""}});
  CHECK(materialise(manifest, folder / "t", write_hello).error().code == Code::AlreadyExists);
  CHECK(materialise(manifest, folder / "dangling", write_hello).error().code ==
        Code::AlreadyExists);
  CHECK(test::describe_tree(folder / "t") == "mine 644 x\n");
}

TEST_CASE("when a blob fails nothing is left, and the file is named") {
  const TemporaryFolder folder;
  const auto manifest = manifest_with({{"a", pb::Entry::FILE, 0644, 5, kDigest, "", ""},
                                       {"d", pb::Entry::DIRECTORY, 0555, 0, "", "", ""},
                                       {"d/b", pb::Entry::FILE, 0644, 5, kDigest, "", ""}});
  int count = 0;
  const Status written = materialise(manifest, folder / "t", [&](const Sha256&, uint64_t, int) {
    return ++count == 2 ? Status(Error{Code::DataLoss, "gone", ""}) : ok();
  });
  REQUIRE(!written.ok());
  CHECK(written.error().message == "'d/b': gone");
  CHECK(!fs::exists(folder / "t"));
}

TEST_CASE("unchecked manifests can't reach out of the target") {
  // check_manifest refuses these; the writer must not depend on it.
  const TemporaryFolder folder;
  write_file(folder / "outside/victim", "untouched");
  const std::string outside = folder / "outside";
  const auto tree = test::describe_tree(folder / "outside");
  const pb::Manifest hostile[] = {
      manifest_with({{"l", pb::Entry::SYMLINK, 0777, 0, "", outside, ""},
                     {"l/new", pb::Entry::FILE, 0644, 5, kDigest, "", ""}}),
      manifest_with({{"l", pb::Entry::SYMLINK, 0777, 0, "", outside, ""},
                     {"l/victim", pb::Entry::FILE, 0644, 5, kDigest, "", ""}}),
      manifest_with({{"l", pb::Entry::SYMLINK, 0777, 0, "", outside + "/victim", ""},
                     {"l", pb::Entry::FILE, 0644, 5, kDigest, "", ""}}),
      manifest_with({{"l", pb::Entry::SYMLINK, 0777, 0, "", outside, ""},
                     {"l/d", pb::Entry::DIRECTORY, 0755, 0, "", "", ""}}),
  };
  for (const pb::Manifest& manifest : hostile) {
    CHECK(!check_manifest(manifest).ok());
    CHECK(!materialise(manifest, folder / "t", write_hello).ok());
    CHECK(!fs::exists(folder / "t"));
    CHECK(test::describe_tree(folder / "outside") == tree);
  }
}

TEST_CASE("remove_tree takes everything and follows nothing") {
  const TemporaryFolder folder;
  write_file(folder / "outside", "stays");
  fs::create_directories(folder / "t/locked/below");
  write_file(folder / "t/locked/below/f", "");
  fs::create_symlink(folder.path(), folder / "t/up");
  fs::permissions(folder / "t/locked/below", fs::perms::none);
  fs::permissions(folder / "t/locked", fs::perms::none);
  CHECK(remove_tree(folder / "t").ok());
  CHECK(!fs::exists(folder / "t"));
  CHECK(test::read_file(folder / "outside") == "stays");
  CHECK(remove_tree(folder / "t").ok());
  fs::create_symlink("outside", folder / "link");
  CHECK(remove_tree(folder / "link").ok());
  CHECK(fs::exists(folder / "outside"));
}

TEST_CASE("remove_tree takes nothing of what is mounted, of the same file system either") {
  const TemporaryFolder folder;
  write_file(folder / "elsewhere/f", "stays");
  const fs::path at = folder / "t/below/at";
  fs::create_directories(at);
  if (::mount((folder / "elsewhere").c_str(), at.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    return tests::say_skipped("mounting a directory needs root");
  }
  const Status refused = remove_tree(folder / "t");
  REQUIRE(::umount2(at.c_str(), MNT_DETACH) == 0);
  REQUIRE(!refused.ok());
  CHECK(refused.error().message == (folder / "t").string() + ": remove 'at': something is mounted there");
  CHECK(test::read_file(folder / "elsewhere/f") == "stays");
  CHECK(remove_tree(folder / "t").ok());
}

}  // namespace
}  // namespace dtrain
