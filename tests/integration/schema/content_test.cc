#include "schema/content.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "schema/snapshot.h"
#include "tests/support/project.h"

namespace dtrain {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;
using test::write_file;

std::string names_of(const Snapshot& snapshot) {
  std::string text;
  std::string_view rest = snapshot.manifest_bytes;
  for (ManifestEntry entry; read_entry(rest, entry);) text += std::string(entry.path) + ' ';
  return text;
}

TEST_CASE("who objects to the size is heard before anything is read") {
  const TemporaryFolder folder;
  constexpr uint64_t kHuge = uint64_t{200} << 30;  // reading it would take minutes
  write_file(folder / "data/huge.bin", "");
  fs::resize_file(folder / "data/huge.bin", kHuge);
  write_file(folder / "train.py", "x");
  SnapshotOptions options;
  options.limits.file_bytes_max = 2 * kHuge;
  bool read = false;
  options.progress = [&](uint64_t) { read = true; };
  options.before_reading = [&](const ProjectSize& project) -> Status {
    CHECK(project.total_bytes == kHuge + 1);
    return Error{Code::InvalidArgument, "too much", ""};
  };
  const auto taken = take_snapshot(folder.path(), options);
  REQUIRE(!taken.ok());
  CHECK(taken.error().message == "too much");
  CHECK(!read);
}

TEST_CASE("explaining reads no file") {
  const TemporaryFolder folder;
  write_file(folder / "huge.bin", "");
  fs::resize_file(folder / "huge.bin", uint64_t{200} << 30);
  SnapshotOptions options;
  options.limits.file_bytes_max = UINT64_MAX;
  std::string in;
  options.explain = [&](const SyncDecision& decision) { in += decision.path; };
  REQUIRE(explain_snapshot(folder.path(), options).ok());
  CHECK(in == "huge.bin");
}

TEST_CASE("a file that goes between the walk and the reading is no part of the snapshot") {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b", "c/d", "e"}) write_file(folder / name, name);
  SnapshotOptions options;
  options.before_reading = [&](const ProjectSize&) {
    fs::remove(folder / "b");
    write_file(folder / "e", "grown");
    return ok();
  };
  const auto taken = take_snapshot(folder.path(), options);
  REQUIRE(taken.ok());
  CHECK(names_of(*taken) == "a c c/d e ");
  CHECK(taken->file_count == 3);
  CHECK(taken->total_bytes == 9);
  CHECK(taken->root == take_snapshot(folder.path(), {})->root);
}

}  // namespace
}  // namespace dtrain
