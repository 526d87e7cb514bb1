#include "runner/spool.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>

#include "schema/disk_room.h"
#include "tests/integration/runner/kept_launch.h"
#include "tests/support/skipped.h"
#include "tests/support/tiny_disk.h"

namespace dtrain::runner {
namespace {

struct SpoolFolder : LaunchFolder {
  std::string read_from(uint64_t offset) const {
    SpoolReader reader(directory, kReplica, offset);
    return rest_of(reader);
  }
  // Everything to be had now; holes as "<offset+bytes>", neighbours in one.
  static std::string rest_of(SpoolReader& reader) {
    std::string text;
    uint64_t hole_bytes = 0;
    const auto close_hole = [&](uint64_t end) {
      if (hole_bytes > 0) text += fmt::format("<{}+{}>", end - hole_bytes, hole_bytes);
      hole_bytes = 0;
    };
    for (auto chunk = reader.next(); chunk.ok() && chunk->has_value(); chunk = reader.next()) {
      CHECK((**chunk).end_offset() == reader.offset());
      hole_bytes += (**chunk).dropped_bytes;
      if ((**chunk).bytes.empty()) continue;
      close_hole((**chunk).offset);
      text += (**chunk).bytes;
    }
    close_hole(reader.offset());
    return text;
  }
  uint64_t first_segment() const {
    for (uint64_t sequence = 1; sequence < 100; ++sequence) {
      if (std::filesystem::exists(directory.spool(kReplica, sequence))) return sequence;
    }
    return 0;
  }
};

std::string numbered(size_t bytes) {
  std::string text;
  for (int i = 0; text.size() < bytes; ++i) text += fmt::format("{} ", i);
  text.resize(bytes);
  return text;
}

TEST_CASE("a reader follows a writer, from any offset") {
  SpoolFolder folder;
  SpoolWriter writer(folder.directory, kReplica, 0);
  SpoolReader reader(folder.directory, kReplica, 0);
  CHECK(!reader.next()->has_value());  // before there is anything
  writer.append("hello ", 100);
  writer.append("world", 200);
  auto first = reader.next();
  CHECK((**first).bytes == "hello ");
  CHECK((**first).unix_ms == 100);
  auto second = reader.next();
  CHECK((**second).bytes == "world");
  CHECK((**second).offset == 6);
  CHECK(!reader.next()->has_value());
  CHECK(!reader.next()->has_value());
  writer.append("!", 300);
  CHECK((**reader.next()).bytes == "!");
  CHECK(writer.end_offset() == 12);
  for (uint64_t offset = 0; offset <= 12; ++offset) {
    CHECK(folder.read_from(offset) == std::string("hello world!").substr(offset));
  }
}

TEST_CASE("a stream goes on over segments, for a reader that keeps up and one that comes late") {
  SpoolFolder folder;
  SpoolWriter writer(folder.directory, kReplica, 0);
  SpoolReader reader(folder.directory, kReplica, 0);
  std::string written;
  std::string followed;
  for (size_t size = 1; written.size() < 3 * kSpoolSegmentBytes; size = size * 2 % 999'983) {
    const std::string piece = numbered(size);
    writer.append(piece, 1);
    written += piece;
    if (size % 3 == 0) followed += SpoolFolder::rest_of(reader);
  }
  followed += SpoolFolder::rest_of(reader);
  CHECK(std::filesystem::exists(folder.directory.spool(kReplica, 3)));
  CHECK((followed == written));
  CHECK((folder.read_from(0) == written));
  const size_t middle = written.size() / 2;
  CHECK((folder.read_from(middle) == written.substr(middle)));
}

TEST_CASE("past the limit the oldest goes, and the reader says how much") {
  SpoolFolder folder;
  SpoolWriter writer(folder.directory, kReplica, 1);  // means two segments
  const std::string piece(1 << 20, 'a');
  for (int i = 0; i < 40; ++i) writer.append(piece, 1);
  CHECK(writer.stored_bytes() <= 2 * kSpoolSegmentBytes);
  CHECK(writer.end_offset() == 40u << 20);
  SpoolReader reader(folder.directory, kReplica, 5);
  auto hole = reader.next();
  REQUIRE((hole.ok() && hole->has_value()));
  CHECK((**hole).offset == 5);
  CHECK((**hole).dropped_bytes > 20u << 20);
  CHECK(SpoolFolder::rest_of(reader).size() == (40u << 20) - (**hole).end_offset());
}

TEST_CASE("a reader inside a segment that is dropped still reads its end") {
  SpoolFolder folder;
  SpoolWriter writer(folder.directory, kReplica, 1);
  SpoolReader reader(folder.directory, kReplica, 0);
  const std::string piece(1 << 20, 'a');
  for (int i = 0; i < 8; ++i) writer.append(piece, 1);
  CHECK((**reader.next()).offset == 0);
  for (int i = 0; i < 40; ++i) writer.append(piece, 1);
  for (uint64_t i = 1; i < 8; ++i) CHECK((**reader.next()).offset == i << 20);
  const auto hole = reader.next();
  CHECK((**hole).offset == 8u << 20);
  CHECK((**hole).dropped_bytes > 0);
  CHECK(SpoolFolder::rest_of(reader).find('<') == std::string::npos);
  CHECK(reader.offset() == 48u << 20);
}

TEST_CASE("only whole acknowledged segments go, and never the last") {
  SpoolFolder folder;
  SpoolWriter writer(folder.directory, kReplica, 0);
  const std::string piece(1 << 20, 'a');
  for (int i = 0; i < 20; ++i) writer.append(piece, 1);
  writer.acknowledge((8u << 20) - 1);
  CHECK(folder.first_segment() == 1);
  writer.acknowledge(8u << 20);
  CHECK(folder.first_segment() == 2);
  CHECK(folder.read_from(8u << 20).size() == 12u << 20);
  writer.acknowledge(20u << 20);
  CHECK(folder.first_segment() == 3);
  CHECK(folder.read_from(16u << 20).size() == 4u << 20);
}

TEST_CASE(
    "the last record cut at every byte: what was before it is read, and it when it is whole") {
  SpoolFolder folder;
  SpoolWriter writer(folder.directory, kReplica, 0);
  writer.append("first ", 1);
  const auto path = folder.directory.spool(kReplica, 1);
  const auto whole_first = std::filesystem::file_size(path);
  writer.append("second", 2);
  const std::string bytes = *read_small_file(path);
  for (size_t size = whole_first; size < bytes.size(); ++size) {
    REQUIRE(::truncate(path.c_str(), static_cast<off_t>(size)) == 0);
    SpoolReader reader(folder.directory, kReplica, 0);
    CHECK(SpoolFolder::rest_of(reader) == "first ");
    CHECK(!reader.next()->has_value());
    // The rest comes after all.
    const Fd file(::open(path.c_str(), O_WRONLY | O_APPEND));
    REQUIRE(::write(file.get(), bytes.data() + size, bytes.size() - size) ==
            static_cast<ssize_t>(bytes.size() - size));
    CHECK(SpoolFolder::rest_of(reader) == "second");
  }
}

TEST_CASE("a damaged byte anywhere is never taken for output") {
  SpoolFolder folder;
  SpoolWriter writer(folder.directory, kReplica, 0);
  writer.append("first ", 1);
  const auto path = folder.directory.spool(kReplica, 1);
  const auto whole_first = std::filesystem::file_size(path);
  writer.append("second", 2);
  const std::string bytes = *read_small_file(path);
  for (size_t at = whole_first; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    REQUIRE(dtrain::write_file(path, damaged).ok());
    SpoolReader reader(folder.directory, kReplica, 0);
    CHECK(SpoolFolder::rest_of(reader) == "first ");
    CHECK(!reader.next()->has_value());
  }
}

TEST_CASE("damage in an earlier segment costs its rest, declared") {
  SpoolFolder folder;
  SpoolWriter writer(folder.directory, kReplica, 0);
  const std::string piece(1 << 20, 'a');
  for (int i = 0; i < 10; ++i) writer.append(piece, 1);
  const auto path = folder.directory.spool(kReplica, 1);
  const Fd file(::open(path.c_str(), O_WRONLY));
  REQUIRE(::pwrite(file.get(), "b", 1, (3 << 20) + 1000) == 1);
  const std::string text = folder.read_from(0);
  CHECK(text.find(fmt::format("<{}+{}>", 3 << 20, 5 << 20)) == 3u << 20);
  CHECK(text.size() == (5u << 20) + strlen("<3145728+5242880>"));
}

struct SmallSpools {
  SpoolFolder folder;
  const test::TinyDisk disk;
  explicit SmallSpools(const char* options) : disk(folder.path, options) {}
};

TEST_CASE("a full disk loses output, counted and declared in its place, and nothing else") {
  SmallSpools small("size=1m");
  if (!small.disk.mounted) return tests::say_skipped("mounting a small file system needs root");
  const LaunchDir& directory = small.folder.directory;
  SpoolWriter writer(directory, kReplica, 0);
  writer.append("before ", 1);
  const auto filler = small.folder.path / "filler";
  {
    const Fd file(::open(filler.c_str(), O_WRONLY | O_CREAT, 0600));
    const std::string zeros(4096, '\0');
    while (::write(file.get(), zeros.data(), zeros.size()) > 0) {
    }
  }
  const std::string big(10'000, 'x');
  writer.append(big, 2);
  writer.append(big, 3);
  CHECK(writer.lost_bytes() == 20'000);
  CHECK(small.folder.read_from(0).find("before ") == 0);
  ::unlink(filler.c_str());
  writer.append("after", 4);
  CHECK(small.folder.read_from(0) == "before <7+20000>after");
  CHECK(small.folder.read_from(100) == "<100+19907>after");
  CHECK(writer.end_offset() == 7 + 20'000 + 5);
}

TEST_CASE("output leaves room on the disk for its way to the daemon, and for what is no output") {
  constexpr uint64_t kDiskBytes = 4 << 20;
  SmallSpools small("size=4m");
  if (!small.disk.mounted) return tests::say_skipped("mounting a small file system needs root");
  const auto free_bytes = [&] { return std::filesystem::space(small.folder.path).free; };
  SpoolWriter writer(small.folder.directory, kReplica, 0);
  const std::string piece(64 << 10, 'x');
  while (writer.lost_bytes() == 0) writer.append(piece, 1);
  // The daemon's copy fits beside it.
  CHECK(free_bytes() >= kDiskBytes / 2);
  const uint64_t kept = writer.end_offset() - piece.size();
  CHECK(kept > kDiskBytes / 4);
  writer.acknowledge(writer.end_offset());
  while (writer.end_offset() < 4 * kDiskBytes) {
    writer.append(piece, 2);
    writer.acknowledge(writer.end_offset());
  }
  CHECK(free_bytes() >= kDiskBytes / 16);
  CHECK(free_bytes() < kDiskBytes / 8);
  writer.finish(3);
  const std::string text = small.folder.read_from(0);
  CHECK(text.find('<') == kept);
  CHECK(writer.lost_bytes() > 0);
}

TEST_CASE("what a spool took has room in the log, though something else grew meanwhile") {
  SmallSpools small("size=12m");
  if (!small.disk.mounted) return tests::say_skipped("mounting a small file system needs root");
  SpoolWriter writer(small.folder.directory, kReplica, 0);
  while (writer.lost_bytes() == 0) writer.append(std::string(1000, 'x'), 1);
  std::ofstream(small.folder.path / "database") << std::string(256 << 10, 'd');
  const Fd log(::open((small.folder.path / "log").c_str(), O_WRONLY | O_CREAT, 0600));
  CHECK(log_room_bytes(log.get()) >= writer.end_offset() - writer.lost_bytes());
}

TEST_CASE("a disk full from the first byte to the last") {
  SmallSpools small("size=4k,nr_inodes=2");
  if (!small.disk.mounted) return tests::say_skipped("mounting a small file system needs root");
  const auto taken = small.folder.path / "taken";
  Fd(::open(taken.c_str(), O_WRONLY | O_CREAT, 0600)).reset();
  SpoolWriter writer(small.folder.directory, kReplica, 0);
  writer.append("lost", 1);
  writer.finish(1);
  CHECK(writer.end_offset() == 4);
  CHECK(small.folder.read_from(0).empty());
  ::unlink(taken.c_str());
  writer.finish(2);
  CHECK(small.folder.read_from(0) == "<0+4>");
}

}  // namespace
}  // namespace dtrain::runner
