#include "daemon/blobs.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include "tests/integration/daemon/opened_blobs.h"
#include "tests/support/project.h"
#include "tests/support/skipped.h"
#include "tests/support/tiny_disk.h"

namespace dtrain::daemon {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

std::unique_ptr<PackWriter> begin(Blobs& blobs) {
  auto pack = blobs.begin();
  REQUIRE(pack.ok());
  return std::move(pack).value();
}

void store(Blobs& blobs, const std::vector<std::string>& contents) {
  const auto pack = begin(blobs);
  for (const auto& bytes : contents) REQUIRE(put(*pack, bytes).ok());
  REQUIRE(pack->commit().ok());
}

TEST_CASE("what was committed is there, now and after a restart; the rest is not") {
  const TemporaryFolder folder;
  const std::string large = random_bytes(3 << 20, 1);
  {
    const auto blobs = open_blobs(folder / "blobs");
    store(*blobs, {"one", "two", "", large});
    const auto pack = begin(*blobs);
    REQUIRE(put(*pack, "never committed").ok());
    CHECK(pack->has(sha256("never committed")));
    CHECK(*pack->read(sha256("never committed"), kBlobMax) == "never committed");
    CHECK(!blobs->has(sha256("never committed")));
  }
  const auto blobs = open_blobs(folder / "blobs");
  CHECK(blobs->notices().empty());
  CHECK(blobs->count() == 4);
  CHECK(blobs->has(sha256("")));
  CHECK(*blobs->read(sha256("two"), kBlobMax) == "two");
  CHECK(*blobs->read(sha256(""), kBlobMax) == "");
  CHECK(*blobs->read(sha256(large), kBlobMax) == large);
  CHECK(blobs->read(sha256(large), 1000).error().code == Code::ResourceExhausted);
  CHECK(blobs->find(sha256("never committed")).error().code == Code::NotFound);
  CHECK(files_in(folder / "blobs") == 1);
}

TEST_CASE("a frame is handed out as it lies, and decodes") {
  const TemporaryFolder folder;
  const auto blobs = open_blobs(folder.path());
  const std::string bytes = std::string(100'000, 'z') + random_bytes(1000, 2);
  store(*blobs, {"before", bytes, "after"});
  const auto stored = blobs->find(sha256(bytes));
  REQUIRE(stored.ok());
  CHECK(stored->size_bytes == bytes.size());
  CHECK(stored->stored_bytes < 3000);
  std::string frame(stored->stored_bytes, '\0');
  REQUIRE(::pread(stored->fd.get(), frame.data(), frame.size(),
                  static_cast<off_t>(stored->offset)) == static_cast<ssize_t>(frame.size()));
  CHECK(*decompress_blob(frame, bytes.size()) == bytes);
}

TEST_CASE("missing() lists each unknown name once, in order") {
  const TemporaryFolder folder;
  const auto blobs = open_blobs(folder.path());
  store(*blobs, {"a", "b"});
  const Sha256 a = sha256("a"), x = sha256("x"), y = sha256("y");
  CHECK(blobs->missing({y, a, x, y, a, x}) == std::vector<Sha256>{y, x});
  CHECK(blobs->missing({}).empty());
}

TEST_CASE("what a full disk does not take is refused, and is to be submitted again") {
  const TemporaryFolder folder;
  const test::TinyDisk disk(folder / "blobs", "size=1m");
  if (!disk.mounted) return tests::say_skipped("mounting a small file system needs root");
  const auto blobs = open_blobs(folder / "blobs");
  const auto refused = put(*begin(*blobs), random_bytes(3 << 20, 1));
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == Code::ResourceExhausted);
  CHECK(refused.error().message == "keep the project's files in " + (folder / "blobs").native() + ": No space left on device");
  CHECK(refused.error().hint == "free some disk space there (dtrain prune), and submit it again");
  CHECK(files_in(folder / "blobs") == 0);
  store(*blobs, {"small enough"});
}

TEST_CASE("two submissions of the same files at once are fine") {
  const TemporaryFolder folder;
  {
    const auto blobs = open_blobs(folder.path());
    const auto first = begin(*blobs);
    const auto second = begin(*blobs);
    REQUIRE(put(*first, "same").ok());
    REQUIRE(put(*second, "same").ok());
    REQUIRE(put(*second, "other").ok());
    REQUIRE(second->commit().ok());
    REQUIRE(first->commit().ok());
    CHECK(blobs->count() == 2);
  }
  CHECK(open_blobs(folder.path())->count() == 2);
}

TEST_CASE("bytes that are not the blob spoil the pack, and nothing of it stays") {
  const TemporaryFolder folder;
  const auto blobs = open_blobs(folder.path());
  const auto frame = compress_blob("content");
  REQUIRE(frame.ok());
  SUBCASE("another name") {
    const auto pack = begin(*blobs);
    CHECK(pack->add(sha256("other!!"), 7, *frame, true).error().code == Code::DataLoss);
    CHECK(pack->commit().error().code == Code::DataLoss);
  }
  SUBCASE("another size") {
    const auto pack = begin(*blobs);
    CHECK(pack->add(sha256("content"), 8, *frame, true).error().code == Code::DataLoss);
    CHECK(pack->commit().error().code == Code::DataLoss);
  }
  SUBCASE("mixed parts") {
    const auto pack = begin(*blobs);
    CHECK(pack->add(sha256("content"), 7, frame->substr(0, 3), false).ok());
    CHECK(pack->add(sha256("x"), 1, *frame, true).error().code == Code::InvalidArgument);
    CHECK(!pack->commit().ok());
  }
  SUBCASE("cut short") {
    const auto pack = begin(*blobs);
    CHECK(pack->add(sha256("content"), 7, frame->substr(0, 3), false).ok());
    CHECK(!pack->commit().ok());
  }
  CHECK(blobs->count() == 0);
  CHECK(files_in(folder.path()) == 0);
}

TEST_CASE("a pack with nothing in it costs nothing") {
  const TemporaryFolder folder;
  const auto blobs = open_blobs(folder.path());
  CHECK(begin(*blobs)->commit().ok());
  CHECK(files_in(folder.path()) == 0);
}

TEST_CASE("after a crash: unfinished packs are removed, cut ones say what is lost") {
  const TemporaryFolder folder;
  std::vector<std::string> contents;
  for (int i = 0; i < 2500; ++i) contents.push_back(fmt::format("file {}", i));
  {
    const auto blobs = open_blobs(folder.path());
    store(*blobs, {"safe"});
    store(*blobs, contents);
    store(*blobs, {"also safe"});
  }
  test::write_file(folder / "9.tmp", "half a pack");
  const std::string good = test::read_file(folder / "2.pack");
  for (const size_t lost : {size_t{1}, size_t{36}, size_t{40}, size_t{5000}, good.size() - 10}) {
    CAPTURE(lost);
    test::write_file(folder / "2.pack", good.substr(0, good.size() - lost));
    const auto blobs = open_blobs(folder.path());
    CHECK(!fs::exists(folder / "9.tmp"));
    CHECK(blobs->count() == 2);
    REQUIRE(blobs->notices().size() == 1);
    CHECK(blobs->notices()[0].find("2.pack") != std::string::npos);
    CHECK(blobs->missing({sha256("safe"), sha256("file 7"), sha256("also safe")}) ==
          std::vector<Sha256>{sha256("file 7")});
    // Sent again it is there again, under a name that was never used.
    if (lost == 1) {
      store(*blobs, {"file 7"});
      CHECK(fs::exists(folder / "4.pack"));
      fs::remove(folder / "4.pack");
    }
  }
  test::write_file(folder / "2.pack", good);
  const auto blobs = open_blobs(folder.path());
  CHECK(blobs->count() == 2502);
  CHECK(*blobs->read(sha256("file 2499"), kBlobMax) == "file 2499");
}

TEST_CASE("a byte that rots on the disk is noticed when the blob is read") {
  const TemporaryFolder folder;
  const std::string bytes = random_bytes(1000, 3);
  { store(*open_blobs(folder.path()), {bytes}); }
  std::string pack = test::read_file(folder / "1.pack");
  pack[500] = static_cast<char>(pack[500] ^ 1);
  test::write_file(folder / "1.pack", pack);
  const auto blobs = open_blobs(folder.path());
  REQUIRE(blobs->has(sha256(bytes)));
  CHECK(blobs->read(sha256(bytes), kBlobMax).error().code == Code::DataLoss);
}

TEST_CASE("a blob that was found damaged is missing until it is sent again") {
  const TemporaryFolder folder;
  const std::string bytes = random_bytes(1000, 4);
  const auto blobs = open_blobs(folder.path());
  store(*blobs, {"list", bytes});
  blobs->set_whole(sha256("list"));
  const auto good = blobs->find(sha256(bytes));
  REQUIRE(good.ok());
  std::string frame(good->stored_bytes, '\0');
  REQUIRE(::pread(good->fd.get(), frame.data(), frame.size(), static_cast<off_t>(good->offset)) == static_cast<ssize_t>(frame.size()));
  Checksum checksum;
  checksum.add(frame);
  CHECK(checksum.value() == good->checksum);
  CHECK(blobs->forget(sha256(bytes)).code == Code::DataLoss);
  CHECK(blobs->missing({sha256("list"), sha256(bytes)}) == std::vector{sha256(bytes)});
  CHECK(!blobs->is_whole(sha256("list")));
  CHECK(blobs->forget(sha256("never seen")).code == Code::DataLoss);
  store(*blobs, {bytes});
  CHECK(blobs->has(sha256(bytes)));
  const uint64_t stored_bytes = blobs->stored_bytes();
  const auto again = open_blobs(folder.path());   // the newer one counts
  CHECK(again->find(sha256(bytes))->checksum == good->checksum);
  CHECK(again->stored_bytes() == stored_bytes);
}

}  // namespace
}  // namespace dtrain::daemon
