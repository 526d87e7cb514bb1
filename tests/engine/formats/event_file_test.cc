#include "engine/formats/event_file.h"

#include <doctest/doctest.h>

#include <cstring>
#include <filesystem>
#include <span>
#include <vector>

#include "engine/formats/crc32c.h"
#include "tests/support/project.h"

namespace dtrain::engine {
namespace {

namespace fs = std::filesystem;

// The payloads of the records, their sums checked.
std::vector<std::string> records_of(const std::string& bytes) {
  std::vector<std::string> records;
  const auto sum = [](std::string_view text) { return masked_crc32c(std::as_bytes(std::span(text))); };
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    uint32_t crc = 0;
    REQUIRE(bytes.size() - at >= 12);
    std::memcpy(&length, bytes.data() + at, 8);
    std::memcpy(&crc, bytes.data() + at + 8, 4);
    CHECK(crc == sum(std::string_view(bytes).substr(at, 8)));
    REQUIRE(bytes.size() - at >= 16 + length);
    records.push_back(bytes.substr(at + 12, length));
    std::memcpy(&crc, bytes.data() + at + 12 + length, 4);
    CHECK(crc == sum(records.back()));
    at += 16 + length;
  }
  return records;
}

TEST_CASE("the sum of TFRecords is the one that is published") {
  // RFC 3720, B.4: 32 bytes of zeros, and of ones.
  const std::string zeros(32, '\0'), ones(32, '\xff');
  CHECK(crc32c(std::as_bytes(std::span(zeros))) == 0x8a9136aau);
  CHECK(crc32c(std::as_bytes(std::span(ones))) == 0x62a8ab43u);
  CHECK(crc32c_by_table(std::as_bytes(std::span(ones))) == 0x62a8ab43u);
}

TEST_CASE("a scalar is the bytes that its message has") {
  // wall_time 1.0, step 300, summary { value { tag "loss" simple_value 0.5 } }
  const std::string expected = std::string("\x09\0\0\0\0\0\0\xf0\x3f", 9) + "\x10\xac\x02" + "\x2a\x0d\x0a\x0b" +
                               "\x0a\x04loss" + std::string("\x15\0\0\0\x3f", 5);
  CHECK(scalar_event(1.0, 300, "loss", 0.5f) == expected);
}

TEST_CASE("a file begins with its version, and each has its own") {
  const test::TemporaryFolder folder;
  auto one = EventFile::create(folder / "logs");
  auto two = EventFile::create(folder / "logs");
  REQUIRE(one.ok());
  REQUIRE(two.ok());
  one->scalar("loss", 1, 0.25);
  one->scalar("accuracy", 2, 0.75);
  size_t files = 0, scalars = 0;
  for (const auto& entry : fs::directory_iterator(folder / "logs")) {
    ++files;
    CHECK(entry.path().filename().string().starts_with("events.out.tfevents."));
    const std::vector<std::string> records = records_of(test::read_file(entry.path()));
    REQUIRE(!records.empty());
    CHECK(records[0].ends_with("brain.Event:2"));
    scalars += records.size() - 1;
  }
  CHECK(files == 2);
  CHECK(scalars == 2);
}

}  // namespace
}  // namespace dtrain::engine
