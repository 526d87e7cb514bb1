#include "engine/data/digits.h"

#include <doctest/doctest.h>

#include <array>
#include <span>

#include "engine/data/dataset.h"
#include "engine/formats/crc32c.h"
#include "tests/support/project.h"

namespace dtrain::engine {
namespace {

TEST_CASE("a digit depends on the seed and its number alone") {
  const DigitImages many = draw_digits(42, 0, 300), few = draw_digits(42, 100, 50);
  CHECK(std::equal(few.pixels.begin(), few.pixels.end(), many.pixels.begin() + 100 * 28 * 28));
  CHECK(std::equal(few.labels.begin(), few.labels.end(), many.labels.begin() + 100));
  CHECK(draw_digits(43, 0, 300).pixels != many.pixels);
  // The same bytes on every machine: figures from different places can be compared.
  CHECK(crc32c(std::as_bytes(std::span(many.pixels))) == 3829630732u);
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
