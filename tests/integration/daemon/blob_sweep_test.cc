#include "daemon/blob_sweep.h"

#include <doctest/doctest.h>

#include <fstream>

#include "schema/manifest.h"
#include "tests/integration/daemon/one_daemon.h"
#include "tests/integration/daemon/opened_blobs.h"
#include "tests/support/project.h"

namespace dtrain::daemon {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

constexpr std::chrono::seconds kLong{60};

std::unique_ptr<Blobs> open_intact(const fs::path& folder) {
  auto blobs = open_blobs(folder);
  CHECK(blobs->notices().empty());
  return blobs;
}

std::string manifest_of(const std::vector<std::string>& contents) {
  std::string manifest;
  for (size_t i = 0; i < contents.size(); ++i) {
    const std::string path = fmt::format("file-{:03}", i);
    const std::string name = to_bytes(sha256(contents[i]));
    ManifestEntry entry;
    entry.path = path;
    entry.mode = 0644;
    entry.size = contents[i].size();
    entry.sha256 = name;
    append_entry(manifest, entry);
  }
  return manifest;
}

// A snapshot of these files, in a pack of its own; those that are here already are not stored again.
Sha256 submit(Blobs& blobs, const std::vector<std::string>& contents) {
  const std::string manifest = manifest_of(contents);
  const auto pack = std::move(blobs.begin()).value();
  for (const std::string& bytes : contents) {
    if (!blobs.has(sha256(bytes)) && !pack->has(sha256(bytes))) REQUIRE(put(*pack, bytes).ok());
  }
  if (!blobs.has(sha256(manifest))) REQUIRE(put(*pack, manifest).ok());
  REQUIRE(pack->commit().ok());
  blobs.set_whole(sha256(manifest));
  return sha256(manifest);
}

uint64_t sweep(Blobs& blobs, std::vector<Sha256> roots, bool dry = false) {
  BlobSweep sweep(blobs, std::move(roots), dry);
  while (true) {
    const auto more = sweep.step(kLong);
    REQUIRE(more.ok());
    if (!*more) return sweep.unneeded_bytes();
  }
}

TEST_CASE("what no snapshot names goes with its pack; what one names stays, now and later") {
  const TemporaryFolder folder;
  const std::string shared = random_bytes(1 << 20, 1);
  Sha256 first;
  Sha256 second;
  {
    const auto blobs = open_intact(folder / "blobs");
    first = submit(*blobs, {shared, "of the first"});
    second = submit(*blobs, {shared, "of the second"});
    const Sha256 third = submit(*blobs, {"of the third", random_bytes(3 << 20, 2)});
    CHECK(files_in(folder / "blobs") == 3);
    const uint64_t stored = blobs->stored_bytes();
    CHECK(sweep(*blobs, {first, second, third}) == 0);
    const uint64_t unneeded = sweep(*blobs, {first, second}, true);
    CHECK(unneeded > 3 << 20);
    CHECK(blobs->stored_bytes() == stored);  // that was only a look
    CHECK(sweep(*blobs, {first, second}) == unneeded);
    CHECK(blobs->stored_bytes() == stored - unneeded);
    CHECK(files_in(folder / "blobs") == 2);
    CHECK(!blobs->has(third));
    CHECK(!blobs->is_whole(third));
    CHECK(blobs->is_whole(second));
    CHECK(*blobs->read(sha256(shared), kBlobMax) == shared);
  }
  const auto blobs = open_intact(folder / "blobs");
  CHECK(blobs->count() == 5);
  CHECK(*blobs->read(sha256("of the first"), kBlobMax) == "of the first");
  CHECK(blobs->read(sha256("of the third"), kBlobMax).error().code == Code::NotFound);
}

TEST_CASE("a pack with little that is needed is written anew") {
  const TemporaryFolder folder;
  const std::string kept = random_bytes(700'000, 1);
  {
    const auto blobs = open_intact(folder / "blobs");
    submit(*blobs, {kept, "small", random_bytes(5 << 20, 2)});
    const Sha256 second = submit(*blobs, {kept, "small", "new"});
    sweep(*blobs, {second});
    CHECK(files_in(folder / "blobs") == 2);
    CHECK(*blobs->read(sha256(kept), kBlobMax) == kept);
    uint64_t bytes = 0;
    for (const auto& file : fs::directory_iterator(folder / "blobs")) bytes += file.file_size();
    CHECK(bytes < 800'000);
  }
  const auto blobs = open_intact(folder / "blobs");
  CHECK(*blobs->read(sha256(kept), kBlobMax) == kept);
  CHECK(*blobs->read(sha256("small"), kBlobMax) == "small");
  CHECK(blobs->count() == 4);
}

TEST_CASE("a crash while a pack is written anew leaves it as it was") {
  const TemporaryFolder folder;
  const std::string kept = random_bytes(700'000, 1);
  {
    const auto blobs = open_intact(folder / "blobs");
    submit(*blobs, {kept, random_bytes(5 << 20, 2)});
    const Sha256 second = submit(*blobs, {kept, "new"});
    BlobSweep sweep(*blobs, {second}, false);
    // Marked, cut, and one part of what stays copied.
    for (int i = 0; i < 3; ++i) REQUIRE(sweep.step(std::chrono::microseconds(0)).value());
  }
  const auto blobs = open_intact(folder / "blobs");
  CHECK(*blobs->read(sha256(kept), kBlobMax) == kept);
  CHECK(files_in(folder / "blobs") == 2);
}

TEST_CASE("what a submission relies on while marking goes on stays") {
  const TemporaryFolder folder;
  const auto blobs = open_intact(folder / "blobs");
  const Sha256 first = submit(*blobs, {"a", "b"});
  const Sha256 second = submit(*blobs, {"c", "d"});
  submit(*blobs, {"e", "f"});
  BlobSweep sweep(*blobs, {first}, false);
  // One knows all of its files, another some.
  CHECK(blobs->is_whole(second));
  CHECK(blobs->missing({sha256("e"), sha256("g")}) == std::vector{sha256("g")});
  while (sweep.step(kLong).value()) {
  }
  for (const char* bytes : {"a", "b", "c", "d", "e"}) CHECK(blobs->has(sha256(bytes)));
  CHECK(blobs->is_whole(second));
  CHECK(!blobs->has(sha256("f")));
}

TEST_CASE("between submissions only") {
  const TemporaryFolder folder;
  const auto blobs = open_intact(folder / "blobs");
  CHECK(BlobSweep::may_begin(*blobs));
  {
    const auto pack = std::move(blobs->begin()).value();
    CHECK(!BlobSweep::may_begin(*blobs));
  }
  CHECK(BlobSweep::may_begin(*blobs));
  const BlobSweep sweep(*blobs, {}, true);
  CHECK(!BlobSweep::may_begin(*blobs));
}

// Its pack stays for what else is in it: the next start finds it again, without its files.
TEST_CASE("a manifest that comes back at the next start is not taken for whole") {
  const TemporaryFolder folder;
  Sha256 gone;
  {
    const auto blobs = open_intact(folder / "blobs");
    const std::string shared = random_bytes(1 << 20, 1);
    submit(*blobs, {"its file"});
    gone = submit(*blobs, {"its file", shared});
    const Sha256 kept = submit(*blobs, {shared});
    sweep(*blobs, {kept});
    CHECK(!blobs->has(gone));
  }
  const auto blobs = open_intact(folder / "blobs");
  CHECK(blobs->has(gone));
  CHECK(!blobs->has(sha256("its file")));
  CHECK(!blobs->is_whole(gone));
}

// Other bytes where the blob lies, as a failing disk has them.
void damage(const Blobs& blobs, const fs::path& pack, const Sha256& name) {
  const auto stored = blobs.find(name);
  REQUIRE(stored.ok());
  std::fstream file(pack, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(stored->offset + stored->stored_bytes / 2));
  file.write("DAMAGED", 7);
  REQUIRE(file.flush().good());
}

TEST_CASE("a damaged manifest is as good as none: what only it names goes, and what others name stays") {
  const TemporaryFolder folder;
  const auto blobs = open_intact(folder / "blobs");
  const Sha256 damaged = submit(*blobs, {"shared", "of the damaged"});
  const Sha256 whole = submit(*blobs, {"shared", "of the whole"});
  submit(*blobs, {"of none"});
  damage(*blobs, folder / "blobs/1.pack", damaged);
  REQUIRE(blobs->read(damaged, kBlobMax).error().code == Code::DataLoss);
  sweep(*blobs, {damaged, whole});
  CHECK(!blobs->has(sha256("of none")));
  CHECK(!blobs->has(sha256("of the damaged")));
  CHECK(blobs->is_whole(whole));
  CHECK(*blobs->read(sha256("shared"), kBlobMax) == "shared");
  CHECK(*blobs->read(sha256("of the whole"), kBlobMax) == "of the whole");
  // Whoever submits it again has to send it, and then all is there.
  CHECK(!blobs->is_whole(damaged));
  CHECK(blobs->missing({damaged, sha256("shared")}) == std::vector{damaged});
  CHECK(submit(*blobs, {"shared", "of the damaged"}) == damaged);
  sweep(*blobs, {damaged, whole});
  CHECK(blobs->read(damaged, kBlobMax).ok());
  CHECK(*blobs->read(sha256("of the damaged"), kBlobMax) == "of the damaged");
}

TEST_CASE("a pack with a damaged file that is needed stays as it is, and the others are cleared") {
  const TemporaryFolder folder;
  const auto blobs = open_intact(folder / "blobs");
  const std::string file = random_bytes(1'000, 1);
  const std::string other = random_bytes(1'000, 2);
  submit(*blobs, {other, random_bytes(1 << 20, 3)});
  submit(*blobs, {file, random_bytes(1 << 20, 4)});
  const Sha256 kept = submit(*blobs, {file, other});
  SUBCASE("of other bytes") { damage(*blobs, folder / "blobs/2.pack", sha256(file)); }
  SUBCASE("that can't be read") {
    fs::rename(folder / "blobs/2.pack", folder / "2.pack");
    fs::create_directory(folder / "blobs/2.pack");
  }
  sweep(*blobs, {kept});
  CHECK(!fs::exists(folder / "blobs/1.pack"));
  CHECK(fs::exists(folder / "blobs/2.pack"));
  CHECK(*blobs->read(sha256(other), kBlobMax) == other);
  CHECK(!blobs->read(sha256(file), kBlobMax).ok());
  CHECK(blobs->has(sha256(file)));
  CHECK(BlobSweep::may_begin(*blobs));
}

TEST_CASE("what is only deleted goes first: it makes room for what is written anew") {
  const TemporaryFolder folder;
  const auto blobs = open_intact(folder / "blobs");
  const std::string kept = random_bytes(700'000, 1);
  submit(*blobs, {random_bytes(1 << 20, 2)});
  submit(*blobs, {kept, random_bytes(5 << 20, 3)});
  submit(*blobs, {random_bytes(1 << 20, 4)});
  const Sha256 needs = submit(*blobs, {kept, "new"});
  BlobSweep sweep(*blobs, {needs}, false);
  REQUIRE(sweep.step(std::chrono::microseconds(0)).value());  // marks
  REQUIRE(sweep.step(std::chrono::microseconds(0)).value());  // cuts
  Status cleared = ok();
  {
    const FullDisk full;
    if (const auto more = sweep.step(kLong); !more.ok()) cleared = more.error();
  }
  CHECK(!cleared.ok());
  CHECK(!fs::exists(folder / "blobs/1.pack"));
  CHECK(fs::exists(folder / "blobs/2.pack"));
  CHECK(!fs::exists(folder / "blobs/3.pack"));
  CHECK(*blobs->read(sha256(kept), kBlobMax) == kept);
}

TEST_CASE("a manifest that makes no sense stops the sweep before anything goes") {
  const TemporaryFolder folder;
  const auto blobs = open_intact(folder / "blobs");
  submit(*blobs, {"a"});
  {
    const auto pack = std::move(blobs->begin()).value();
    REQUIRE(put(*pack, "no manifest at all").ok());
    REQUIRE(pack->commit().ok());
  }
  {
    BlobSweep sweep(*blobs, {sha256("no manifest at all")}, false);
    CHECK(sweep.step(kLong).error().code == Code::DataLoss);
  }
  CHECK(blobs->count() == 3);
  CHECK(BlobSweep::may_begin(*blobs));
}

}  // namespace
}  // namespace dtrain::daemon
