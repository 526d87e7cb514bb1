// Digits that look written by hand, in MNIST's format, for who has no data set at hand: drawn from
// strokes whose points, slant, size, place, width and grey differ from image to image. The same seed
// gives the same bytes on every machine, so that figures from different places can be compared.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "schema/result.h"

namespace dtrain::engine {

struct DigitImages {
  static constexpr int kSide = 28;
  std::vector<uint8_t> pixels;  // [count][28][28], white on black
  std::vector<uint8_t> labels;
};

// Image i depends on (seed, first + i) alone.
DigitImages draw_digits(uint64_t seed, uint64_t first, int64_t count);

struct DigitOptions {
  int64_t train = 60000;
  int64_t test = 10000;
  uint64_t seed = 42;
  bool overwrite = true;  // false: a file that is there and is another one is an error, AlreadyExists
};

// Writes folder/train/train-images-idx3-ubyte and -labels-idx1-ubyte, and folder/test/t10k-...
// A file is whole or not there.
Status generate_digits(const std::filesystem::path& folder, const DigitOptions& options);

}  // namespace dtrain::engine
