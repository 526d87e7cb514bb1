// Images and their labels as a folder holds them:
//   images.npy and labels.npy, or
//   a file named as MNIST's images (train-images-idx3-ubyte, .gz too) and one as its labels. Where
//   the folder has several pairs, those of `part` are taken: train..., or t10k... and test...; of
//   a file that is there with .gz and without, the latter
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "schema/result.h"

namespace dtrain::engine {

enum class Part { Train, Test };

struct ImageFiles {
  std::string images_path, labels_path;
  int64_t count = 0;
  std::array<int64_t, 3> shape{};  // channels, height, width
  std::vector<uint8_t> bytes;      // the pixels, row-major: either these
  std::vector<float> floats;       // or these
  std::vector<int32_t> labels;     // not negative
};

inline constexpr int64_t kMostClasses = 65536;

// Errors name the file: none, several, damaged, of no use, different counts, a label out of range.
Result<ImageFiles> read_image_files(const std::filesystem::path& folder, Part part);

}  // namespace dtrain::engine
