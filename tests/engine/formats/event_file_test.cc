#include "engine/formats/event_file.h"

#include <doctest/doctest.h>

#include <sys/resource.h>

#include <algorithm>
#include <csignal>
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
  auto one = EventFile::create(folder / "logs", 1);
  auto two = EventFile::create(folder / "logs", 1);
  REQUIRE(one.ok());
  REQUIRE(two.ok());
  one->scalar("loss", 1, 0.25);
  one->scalar("accuracy", 2, 0.75);
  size_t files = 0, scalars = 0;
  for (const auto& entry : fs::directory_iterator(folder / "logs")) {
    ++files;
    CHECK(entry.path().filename().string().starts_with("events.out.tfevents."));
    const std::vector<std::string> records = records_of(test::read_file(entry.path()));
    REQUIRE(records.size() >= 2);
    CHECK(records[0].ends_with("brain.Event:2"));
    CHECK(records[1].ends_with(start_event(0, 1).substr(9)));  // behind its time
    scalars += records.size() - 2;
  }
  CHECK(files == 2);
  CHECK(scalars == 2);
}

TEST_CASE("where a session starts is the bytes that its message has") {
  // wall_time 1.0, step 300, session_log { status START }
  CHECK(start_event(1.0, 300) == std::string("\x09\0\0\0\0\0\0\xf0\x3f", 9) + "\x10\xac\x02" + "\x3a\x02\x08\x01");
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST_CASE("a later file has a later name, whatever the clock says") {
  const test::TemporaryFolder folder;
  // Of a host whose clock is ahead; and what is no event file.
  const std::string ahead = "events.out.tfevents.9000000000.zeta.7.0";
  test::write_file(folder / "logs" / ahead, "");
  test::write_file(folder / "logs/events.out.tfevents.x", "");
  REQUIRE(EventFile::create(folder / "logs", 1).ok());
  REQUIRE(EventFile::create(folder / "logs", 1).ok());
  const auto names = names_in(folder / "logs");
  REQUIRE(names.size() == 4);
  CHECK(names[0] == ahead);
  CHECK(names[1].starts_with("events.out.tfevents.9000000001."));
  CHECK(names[2].starts_with("events.out.tfevents.9000000002."));
}

TEST_CASE("a full disk leaves whole records, and what fits later follows them") {
  const test::TemporaryFolder folder;
  auto file = EventFile::create(folder / "logs", 1);
  REQUIRE(file.ok());
  file->scalar("loss", 1, 0.5);
  const fs::path path = folder / "logs" / names_in(folder / "logs").front();
  const uint64_t before = fs::file_size(path);
  rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t room : {0, 1, 11, 12, 20}) {
    const rlimit little{before + room, limit.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &little) == 0);
    file->scalar("loss", 2, 0.25);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    CHECK(fs::file_size(path) == before);
  }
  std::signal(SIGXFSZ, handler);
  file->scalar("loss", 3, 0.125);
  const auto records = records_of(test::read_file(path));
  REQUIRE(records.size() == 4);
  CHECK(records[3].ends_with(scalar_event(0, 3, "loss", 0.125f).substr(9)));
}

}  // namespace
}  // namespace dtrain::engine
