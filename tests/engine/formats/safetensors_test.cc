#include "engine/formats/safetensors.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>

#include "tests/support/project.h"

namespace dtrain::engine {
namespace {

using test::TemporaryFolder;

std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  return bytes + header + data;
}

std::string why_not(const std::string& bytes) {
  const TemporaryFolder folder;
  test::write_file(folder / "x.safetensors", bytes);
  const auto file = SafetensorsFile::open(folder / "x.safetensors");
  return file.ok() ? "" : file.error().message;
}

TEST_CASE("tensors come back as they were written") {
  const TemporaryFolder folder;
  const std::vector<float> a{1, 2, 3, 4, 5, 6}, b{7};
  {
    auto file = FileWriter::create(folder / "m.safetensors");
    REQUIRE(file.ok());
    const std::vector<TensorView> tensors{{"a", {2, 3}, a}, {"b", {1}, b}, {"none", {0, 4}, {}}};
    REQUIRE(write_safetensors(*file, tensors, {{"format", "pt"}}).ok());
    REQUIRE(file->finish().ok());
  }
  const auto file = SafetensorsFile::open(folder / "m.safetensors");
  REQUIRE(file.ok());
  CHECK(file->metadata() == Metadata{{"format", "pt"}});
  CHECK(file->names() == std::vector<std::string>{"a", "b", "none"});
  std::vector<float> read(6);
  CHECK(file->read("a", std::vector<int64_t>{2, 3}, read).ok());
  CHECK(read == a);
  const Status other_shape = file->read("a", std::vector<int64_t>{3, 2}, read);
  REQUIRE(!other_shape.ok());
  CHECK(other_shape.error().message.find("a is F32 [2, 3], and the model has F32 [3, 2]") != std::string::npos);
  CHECK(file->read("c", std::vector<int64_t>{6}, read).error().code == Code::NotFound);
  // Data begin at a multiple of eight.
  const std::string bytes = test::read_file(folder / "m.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  CHECK(header % 8 == 0);
}

TEST_CASE("what weights can't be is named by its tensor") {
  const TemporaryFolder folder;
  test::write_file(folder / "m.safetensors",
                   file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F16","shape":[2],"data_offsets":[4,8]}})",
                           std::string("\x00\x00\xc0\x7f", 4) + "abcd"));
  const auto file = SafetensorsFile::open(folder / "m.safetensors");
  REQUIRE_MESSAGE(file.ok(), file.error().message);
  std::vector<float> read(1);
  const Status not_finite = file->read("a", std::vector<int64_t>{1}, read);
  REQUIRE(!not_finite.ok());
  CHECK(not_finite.error().message.ends_with("m.safetensors: a has a number that is not finite"));
  const Status half = file->check("b", std::vector<int64_t>{2});
  REQUIRE(!half.ok());
  CHECK(half.error().hint == "save its tensors as float32");
}

TEST_CASE("tensors of a file that becomes shorter can't be read, which ends nothing") {
  const TemporaryFolder folder;
  const std::vector<float> values(1 << 16, 1);
  {
    auto file = FileWriter::create(folder / "m.safetensors");
    REQUIRE(file.ok());
    const std::vector<TensorView> tensors{{"a", {1 << 16}, values}};
    REQUIRE(write_safetensors(*file, tensors, {}).ok());
    REQUIRE(file->finish().ok());
  }
  const auto file = SafetensorsFile::open(folder / "m.safetensors");
  REQUIRE(file.ok());
  std::filesystem::resize_file(folder / "m.safetensors", 4096);
  std::vector<float> read(values.size());
  const Status cut = file->read("a", std::vector<int64_t>{1 << 16}, read);
  REQUIRE(!cut.ok());
  CHECK(cut.error().code == Code::DataLoss);
}

TEST_CASE("a file of no tensors is one: the state of an optimiser that has none") {
  const TemporaryFolder folder;
  {
    auto file = FileWriter::create(folder / "none.safetensors");
    REQUIRE(file.ok());
    REQUIRE(write_safetensors(*file, {}, {}).ok());
    REQUIRE(file->finish().ok());
  }
  const auto file = SafetensorsFile::open(folder / "none.safetensors");
  REQUIRE(file.ok());
  CHECK(file->names().empty());
}

TEST_CASE("what is damaged is said") {
  const std::string four(4, '\0');
  CHECK(why_not("") != "");
  CHECK(why_not("1234567") != "");
  CHECK(why_not(std::string(8, '\xff')).find("header") != std::string::npos);
  CHECK(why_not(file_of("[]", "")).find("no JSON object") != std::string::npos);
  CHECK(why_not(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", four)) == "");
  CHECK(why_not(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", four)).find("tensor a") != std::string::npos);
  CHECK(why_not(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", four)).find("tensor a") != std::string::npos);
  CHECK(why_not(file_of(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", four)).find("F31") != std::string::npos);
  CHECK(why_not(file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", four)) != "");
  CHECK(why_not(file_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})", four)) != "");
  CHECK(why_not(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", four + four)).find("hole at byte 4") != std::string::npos);
  CHECK(why_not(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", four + four)).find("overlap") != std::string::npos);
  CHECK(why_not(file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", four + "x")).find("1 bytes belong") != std::string::npos);
  CHECK(why_not(file_of(R"({"a":7})", "")) != "");
}

TEST_CASE("no bytes whatever crash the reader") {
  const std::string whole = file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", std::string(8, 'x'));
  for (size_t length = 0; length < whole.size(); ++length) CHECK(why_not(whole.substr(0, length)) != "");
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    std::string broken = whole;
    for (int i = 0; i < 3; ++i) broken[random() % broken.size()] = static_cast<char>(random());
    (void)why_not(broken);
  }
}

}  // namespace
}  // namespace dtrain::engine
