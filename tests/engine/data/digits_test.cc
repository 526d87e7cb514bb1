#include "engine/data/digits.h"

#include <doctest/doctest.h>

#include <array>
#include <span>

#include "engine/data/dataset.h"
#include "engine/formats/crc32c.h"
#include "schema/sha256.h"
#include "tests/support/project.h"

namespace dtrain::engine {
namespace {

TEST_CASE("a digit depends on the seed and its number alone") {
  const DigitImages many = draw_digits(42, 0, 300), few = draw_digits(42, 100, 50);
  CHECK(std::equal(few.pixels.begin(), few.pixels.end(), many.pixels.begin() + 100 * 28 * 28));
  CHECK(std::equal(few.labels.begin(), few.labels.end(), many.labels.begin() + 100));
  CHECK(draw_digits(43, 0, 300).pixels != many.pixels);
  // The same bytes on every machine: figures from different places can be compared.
  CHECK(crc32c(std::as_bytes(std::span(many.pixels))) == 2635633564u);
}

TEST_CASE("every class is there about as often, and no image is empty") {
  const DigitImages digits = draw_digits(7, 0, 2000);
  std::array<int, 10> found{};
  for (const uint8_t label : digits.labels) ++found.at(label);
  for (const int count : found) CHECK(count > 120);
  for (size_t i = 0; i < digits.labels.size(); ++i) {
    int bright = 0;
    for (size_t p = 0; p < 28 * 28; ++p) bright += digits.pixels[i * 28 * 28 + p] > 64;
    CHECK(bright > 10);
    CHECK(bright < 500);
  }
}

TEST_CASE("the files of a seed are these, and no others") {
  const test::TemporaryFolder folder;
  REQUIRE(generate_digits(folder / "data", {.train = 1000, .test = 300}).ok());
  const auto sum = [&](const char* name) { return to_hex(sha256(test::read_file(folder / name))); };
  CHECK(sum("data/train/train-images-idx3-ubyte") ==
        "fdb8bda8d94e36c4783e4a42349026346e11770ec843eaebdef884d764c0e69f");
  CHECK(sum("data/train/train-labels-idx1-ubyte") ==
        "72ceeca0dbcd80e17d8f8caf2ad8f20af9d798889f4c311625bd6593c2ff26c4");
  CHECK(sum("data/test/t10k-images-idx3-ubyte") ==
        "6b9ba2e9e35b990e540f4b3a2267ff859de8ebc199302b3eae63db31373adb62");
  CHECK(sum("data/test/t10k-labels-idx1-ubyte") ==
        "2f5ce5151663d7ac68cf84cb7a673e0147d7319e40716c0d0aadd89c82b1a6f9");
}

TEST_CASE("other files than those that would be drawn are left as they are, unless they are to be replaced") {
  const test::TemporaryFolder folder;
  const std::filesystem::path labels = folder / "data/test/t10k-labels-idx1-ubyte";
  const DigitOptions careful{.train = 20, .test = 10, .overwrite = false};
  REQUIRE(generate_digits(folder / "data", careful).ok());
  const std::string drawn = test::read_file(labels);
  CHECK(generate_digits(folder / "data", careful).ok());  // the same again

  test::write_file(labels, "somebody's");
  const Status refused = generate_digits(folder / "data", careful);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Code::AlreadyExists);
  CHECK(refused.error().message == "another " + labels.string() + " is there already");
  CHECK(test::read_file(labels) == "somebody's");
  CHECK(generate_digits(folder / "data", {.train = 20, .test = 10}).ok());
  CHECK(test::read_file(labels) == drawn);
}

TEST_CASE("generated files are a data set") {
  const test::TemporaryFolder folder;
  REQUIRE(generate_digits(folder / "data", {.train = 200, .test = 50, .seed = 1}).ok());
  const auto train = Dataset::open(folder / "data/train", {});
  REQUIRE(train.ok());
  CHECK(train->size() == 200);
  CHECK(train->classes() == 10);
  const auto test = Dataset::open_like(*train, folder / "data/test");
  REQUIRE(test.ok());
  CHECK(test->size() == 50);
}

}  // namespace
}  // namespace dtrain::engine
