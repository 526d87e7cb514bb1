#include "schema/framing.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <random>
#include <vector>

namespace dtrain {
namespace {

// A file that lives in memory only: scan_frames wants a descriptor, the test wants no disk.
class MemoryFile {
 public:
  explicit MemoryFile(std::string_view bytes) : fd_(memfd_create("frames", MFD_CLOEXEC)) {
    REQUIRE(fd_ >= 0);
    REQUIRE(::write(fd_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  }
  ~MemoryFile() { ::close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

struct Seen {
  uint64_t offset;
  uint32_t kind;
  std::string payload;
};

std::vector<Seen> scan(std::string_view bytes, uint64_t from, uint64_t& end) {
  const MemoryFile file(bytes);
  std::vector<Seen> seen;
  const auto result = scan_frames(file.fd(), from, [&](uint64_t offset, const Frame& frame) {
    seen.push_back({offset, frame.kind, std::string(frame.payload)});
  });
  REQUIRE(result.ok());
  end = *result;
  return seen;
}

TEST_CASE("a frame reads back, whatever its two parts") {
  for (const std::string_view head : {"", "h", "a longer head of this frame"}) {
    for (const std::string& body : {std::string(), std::string("x"), std::string(100'000, '\0')}) {
      std::string out = "before";
      append_frame(out, 7, head, body);
      Frame frame;
      REQUIRE(read_frame(std::string_view(out).substr(6), frame) == FrameStatus::Good);
      CHECK(frame.kind == 7);
      CHECK(frame.payload == std::string(head) + body);
      CHECK(frame.size_bytes == out.size() - 6);
    }
  }
}

TEST_CASE("the layout on disk is what the header says") {
  std::string out;
  append_frame(out, 0x01020304, "ab", "c");
  REQUIRE(out.size() == 16 + 3 + 4);
  CHECK(out.substr(0, 8) == std::string("\x03\0\0\0\x04\x03\x02\x01", 8));
  CHECK(out.substr(16, 3) == "abc");
  CHECK(out.substr(19) == std::string("\x03\0\0\0", 4));
}

TEST_CASE("a cut anywhere in the last record leaves exactly the records before it") {
  std::string bytes;
  append_frame(bytes, 1, "", "first");
  append_frame(bytes, 2, "sec", "ond");
  const size_t good = bytes.size();
  append_frame(bytes, 3, "", "the last one, torn");
  for (size_t cut = good; cut < bytes.size(); ++cut) {
    CAPTURE(cut);
    Frame frame;
    CHECK(read_frame(std::string_view(bytes).substr(good, cut - good), frame) ==
          FrameStatus::Incomplete);
    uint64_t end = 0;
    CHECK(scan(std::string_view(bytes).substr(0, cut), 0, end).size() == 2);
    CHECK(end == good);
  }
  uint64_t end = 0;
  CHECK(scan(bytes, 0, end).size() == 3);
  CHECK(end == bytes.size());
}

TEST_CASE("a flipped bit anywhere in a record is noticed") {
  std::string bytes;
  append_frame(bytes, 5, "head", "body of a record");
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      Frame frame;
      CHECK(read_frame(damaged, frame) != FrameStatus::Good);
    }
  }
}

TEST_CASE("what a crash leaves behind is not taken for a record") {
  Frame frame;
  CHECK(read_frame(std::string(4096, '\0'), frame) == FrameStatus::Corrupt);
  CHECK(read_frame(std::string(4096, '\xff'), frame) == FrameStatus::Corrupt);
  CHECK(read_frame("", frame) == FrameStatus::Incomplete);

  std::string bytes;
  append_frame(bytes, 1, "", "good");
  const size_t good = bytes.size();
  bytes.append(512, '\0');
  append_frame(bytes, 1, "", "unreachable: it follows a hole");
  uint64_t end = 0;
  CHECK(scan(bytes, 0, end).size() == 1);
  CHECK(end == good);
}

TEST_CASE("a scan starts anywhere and takes records larger than its buffer") {
  std::string bytes;
  std::vector<uint64_t> offsets;
  std::mt19937 random(4);
  for (uint32_t i = 0; i < 200; ++i) {
    offsets.push_back(bytes.size());
    const size_t size = i % 50 == 0 ? kFramePayloadMaxBytes : random() % 9000;
    append_frame(bytes, i, "", std::string(size, static_cast<char>('a' + i % 26)));
  }
  uint64_t end = 0;
  const auto all = scan(bytes, 0, end);
  REQUIRE(all.size() == 200);
  CHECK(end == bytes.size());
  for (size_t i = 0; i < all.size(); ++i) {
    CHECK(all[i].offset == offsets[i]);
    CHECK(all[i].kind == i);
  }
  CHECK(scan(bytes, offsets[150], end).size() == 50);
  CHECK(scan(bytes, bytes.size(), end).empty());
  CHECK(end == bytes.size());
}

TEST_CASE("records can be walked backwards by their trailers") {
  std::string bytes;
  for (uint32_t i = 0; i < 5; ++i) append_frame(bytes, i, "", std::string(i * 3, 'x'));
  size_t end = bytes.size();
  for (uint32_t i = 5; i-- > 0;) {
    uint32_t length = 0;
    bytes.copy(reinterpret_cast<char*>(&length), 4, end - 4);
    end -= length + kFrameOverheadBytes;
    Frame frame;
    REQUIRE(read_frame(std::string_view(bytes).substr(end), frame) == FrameStatus::Good);
    CHECK(frame.kind == i);
  }
  CHECK(end == 0);
}

}  // namespace
}  // namespace dtrain
