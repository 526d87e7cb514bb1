#include "cli/event_files.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "cli/event_wire.h"

namespace dtrain::cli {
namespace {

namespace fs = std::filesystem;

const fs::path kEvents = fs::path(TESTDATA) / "events";
const fs::path kFile = kEvents / "tensorflow2/train/events.out.tfevents.1700000000.host.1.0.v2";

std::string read_file(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// "tag last@step min max count", a line each.
std::string shown(const Scalars& scalars) {
  std::string text;
  for (const auto& [tag, scalar] : scalars) {
    text += fmt::format("{} {}@{} {} {} {}\n", tag, scalar.last, scalar.last_step, scalar.minimum,
                        scalar.maximum, scalar.count);
  }
  return text;
}

Scalars scalars_of(std::string bytes, std::string_view folder = "") {
  Scalars scalars;
  bytes += '\0';  // fmemopen takes no empty buffer
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      fmemopen(bytes.data(), bytes.size(), "rb"), std::fclose);
  REQUIRE(file);
  FolderReader(folder).read(file.get(), scalars);
  return scalars;
}

std::string framed(const std::string& record) {
  std::string out(8, '\0');
  const uint64_t length = record.size();
  std::memcpy(out.data(), &length, 8);
  const auto add_sum = [&out](uint32_t sum) { out.append(reinterpret_cast<char*>(&sum), 4); };
  add_sum(masked_crc32c(out));
  out += record;
  add_sum(masked_crc32c(record));
  return out;
}

// An Event with one simple_value.
std::string event(int8_t step, std::string_view tag, float number) {
  std::string value =
      "\x0a" + std::string(1, static_cast<char>(tag.size())) + std::string(tag) + "\x15";
  value.append(reinterpret_cast<const char*>(&number), 4);
  std::string summary = "\x0a" + std::string(1, static_cast<char>(value.size())) + value;
  return "\x10" + std::string(1, static_cast<char>(step)) + "\x2a" +
         std::string(1, static_cast<char>(summary.size())) + summary;
}

// An Event that says that a session starts at the step.
std::string start(int8_t step) {
  return "\x10" + std::string(1, static_cast<char>(step)) + std::string("\x3a\x02\x08\x01", 4);
}

// A folder with such files, the first begun first.
std::string shown_of_files(const std::vector<std::string>& files) {
  std::string name = (fs::temp_directory_path() / "dtrain-events-XXXXXX").native();
  REQUIRE(::mkdtemp(name.data()) != nullptr);
  for (size_t i = 0; i < files.size(); ++i) {
    std::ofstream(fs::path(name) / fmt::format("events.out.tfevents.{}.host", 1700000000 + i)) << files[i];
  }
  const std::string text = shown(read_event_files(name));
  fs::remove_all(name);
  return text;
}

TEST_CASE("steps that a resumed training repeats count once, as those of its last session") {
  const auto steps = [](int from, int to, float value) {
    std::string text;
    for (int step = from; step <= to; ++step) text += framed(event(static_cast<int8_t>(step), "loss", value));
    return text;
  };
  // Killed at 7, in the middle of a record, with a checkpoint at 4; then at 5, with one at 2.
  const std::string first = framed(start(1)) + steps(1, 7, 9) + framed(event(8, "loss", 9)).substr(0, 11);
  const std::string second = framed(start(5)) + steps(5, 5, 8);
  const std::string third = framed(start(3)) + steps(3, 10, 1);
  CHECK(shown_of_files({first}) == "loss 9@7 9 9 7\n");
  CHECK(shown_of_files({first, second}) == "loss 8@5 8 9 5\n");
  CHECK(shown_of_files({first, second, third}) == "loss 1@10 1 9 10\n");
  // In one file, and one that goes on where the last ended.
  CHECK(shown_of_files({framed(start(1)) + steps(1, 4, 9) + framed(start(3)) + steps(3, 4, 2)}) == "loss 2@4 2 9 4\n");
  CHECK(shown_of_files({framed(start(1)) + steps(1, 4, 9), framed(start(5)) + steps(5, 6, 2)}) == "loss 2@6 2 9 6\n");
  // A tag that the second session has not come to yet.
  CHECK(shown_of_files({first + framed(event(7, "accuracy", 1)), framed(start(5))}) == "loss 9@4 9 9 4\n");
  // Without a session nothing is known of a resumption, and a SessionLog that says STOP is none.
  CHECK(shown_of_files({steps(1, 3, 9), steps(2, 3, 8)}) == "loss 8@3 8 9 5\n");
  CHECK(shown_of_files({steps(1, 3, 9) + framed(std::string("\x10\x01\x3a\x02\x08\x02", 6))}) == "loss 9@3 9 9 3\n");
}

TEST_CASE("what Keras leaves: a folder each for training and validation") {
  CHECK(shown(read_event_files(kEvents / "tensorflow2")) ==
        "train/epoch_accuracy 0.5@4 0 0.5 5\n"
        "train/epoch_loss 0.4000000059604645@4 0.4000000059604645 2 5\n"
        "validation/epoch_accuracy 0.5@4 0 0.5 5\n"
        "validation/epoch_loss 0.8999999761581421@4 0.8999999761581421 2.5 5\n");
}

TEST_CASE("simple values, and scalar tensors of each type") {
  Scalars scalars = read_event_files(kEvents / "tensorboard");
  REQUIRE(scalars.contains("not/a number"));
  CHECK(std::isnan(scalars["not/a number"].last));
  scalars.erase("not/a number");
  CHECK(shown(scalars) ==
        "Loss/train 2.5@3 1 4 3\n"
        "content/bool 1@27 1 1 1\n"
        "content/double -7@9 -7 -7 1\n"
        "content/float -7@7 -7 -7 1\n"
        "content/half -7@5 -7 -7 1\n"
        "content/int16 -7@15 -7 -7 1\n"
        "content/int32 -7@19 -7 -7 1\n"
        "content/int64 -7@21 -7 -7 1\n"
        "content/int8 -7@11 -7 -7 1\n"
        "content/uint16 7@17 7 7 1\n"
        "content/uint32 7@23 7 7 1\n"
        "content/uint64 7@25 7 7 1\n"
        "content/uint8 7@13 7 7 1\n"
        "values/bool 1@26 1 1 1\n"
        "values/double -7@8 -7 -7 1\n"
        "values/float -7@6 -7 -7 1\n"
        "values/half -7@4 -7 -7 1\n"
        "values/int16 -7@14 -7 -7 1\n"
        "values/int32 -7@18 -7 -7 1\n"
        "values/int64 -7@20 -7 -7 1\n"
        "values/int8 -7@10 -7 -7 1\n"
        "values/uint16 7@16 7 7 1\n"
        "values/uint32 7@22 7 7 1\n"
        "values/uint64 7@24 7 7 1\n"
        "values/uint8 7@12 7 7 1\n");
}

TEST_CASE("no directory, no event files: no scalars") {
  CHECK(read_event_files(kEvents / "nowhere").empty());
  CHECK(read_event_files(fs::path(TESTDATA) / "spec").empty());
}

TEST_CASE("the checksum is the one of the format") {
  CHECK(masked_crc32c("") == 0xa282ead8u);
  CHECK(masked_crc32c("123456789") == ((0xe3069283u >> 15 | 0xe3069283u << 17) + 0xa282ead8u));
}

TEST_CASE("the last is of the highest step; of equal steps the one written later") {
  const std::string file = framed(event(1, "loss", 5)) + framed(event(9, "loss", 2)) +
                           framed(event(4, "loss", 7)) + framed(event(9, "loss", 3));
  CHECK(shown(scalars_of(file)) == "loss 3@9 2 7 4\n");
  CHECK(shown(scalars_of(file, "a/b")) == "a/b/loss 3@9 2 7 4\n");
}

TEST_CASE("a file that ends anywhere gives what is whole of it") {
  const std::string bytes = read_file(kFile);
  uint64_t before = 0;
  for (size_t end = 0; end <= bytes.size(); ++end) {
    uint64_t count = 0;
    for (const auto& [tag, scalar] : scalars_of(bytes.substr(0, end))) count += scalar.count;
    CAPTURE(end);
    REQUIRE(count >= before);
    before = count;
  }
  CHECK(before == 10);
}

TEST_CASE("a damaged byte costs its record, and no other while the length is whole") {
  const std::string one = framed(event(1, "loss", 5));
  const std::string two = framed(event(2, "loss", 6));
  for (size_t at = 0; at < one.size(); ++at) {
    std::string damaged = one;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    CAPTURE(at);
    CHECK(shown(scalars_of(damaged + two)) == (at < 12 ? "" : "loss 6@2 6 6 1\n"));
  }
}

TEST_CASE("a huge record is passed over unread, garbage ends the file") {
  const std::string huge = framed(std::string(kEventMaxBytes + 1, 'x'));
  const std::string one = framed(event(1, "loss", 5));
  CHECK(shown(scalars_of(huge + one)) == "loss 5@1 5 5 1\n");
  CHECK(shown(scalars_of(one + "garbage, and more of it" + one)) == "loss 5@1 5 5 1\n");
  std::string endless(8, '\xff');
  const uint32_t sum = masked_crc32c(endless);
  endless.append(reinterpret_cast<const char*>(&sum), 4);
  CHECK(shown(scalars_of(one + endless + one)) == "loss 5@1 5 5 1\n");
}

TEST_CASE("there are only so many tags") {
  std::string file;
  for (int i = 0; i < 2000; ++i) file += framed(event(1, fmt::format("tag{}", i), 1));
  CHECK(scalars_of(file).size() == kScalarTagsMax);
}

}  // namespace
}  // namespace dtrain::cli
