// CRC-32C (Castagnoli), of event files and checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dtrain::engine {

// Goes on from the sum of what came before.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);
// The same without instructions that a host may lack.
uint32_t crc32c_by_table(std::span<const std::byte> bytes, uint32_t before = 0);

// As TFRecord files store it, so that a sum of bytes that hold their own sum means something.
uint32_t masked_crc32c(std::span<const std::byte> bytes);

}  // namespace dtrain::engine
