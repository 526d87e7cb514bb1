// npy, the format of NumPy's arrays, versions 1 to 3: row-major arrays of little-endian numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "engine/mapped_file.h"
#include "schema/result.h"

namespace dtrain::engine {

enum class NpyType { U8, I32, I64, F32, F64 };

struct Npy {
  NpyType type = NpyType::U8;
  std::vector<int64_t> shape;
  MappedFile file;
  std::span<const std::byte> bytes;  // of the file

  int64_t size() const;  // elements
  std::vector<float> floats() const;
  // InvalidArgument names the first element that is no whole number.
  Result<std::vector<int64_t>> integers() const;
};

// The whole file. Errors name it and say what was found.
Result<Npy> read_npy(const std::filesystem::path& path);

}  // namespace dtrain::engine
