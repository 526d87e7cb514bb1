// IDX, the format of MNIST: a magic number, dimensions (big endian), then bytes. Plain or
// compressed by gzip, which is told by what is in the file, not by its name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "schema/result.h"

namespace dtrain::engine {

inline constexpr uint32_t kIdxImages = 0x803;  // bytes of [count][rows][columns]
inline constexpr uint32_t kIdxLabels = 0x801;  // bytes of [count]

struct Idx {
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;
};

// The whole file. `magic` is what it must be; DataLoss says what was found instead, or what is
// missing.
Result<Idx> read_idx(const std::filesystem::path& path, uint32_t magic);

// The bytes before the data.
std::vector<uint8_t> idx_header(uint32_t magic, const std::vector<uint32_t>& shape);

}  // namespace dtrain::engine
