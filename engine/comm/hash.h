// FNV-1a of 64 bits: for telling things apart, not for trust.
#pragma once

#include <cstdint>
#include <string_view>

namespace dtrain::engine {

inline constexpr uint64_t kHashStart = 0xcbf29ce484222325;

constexpr uint64_t hash_of(std::string_view bytes, uint64_t hash = kHashStart) {
  for (const char byte : bytes) {
    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace dtrain::engine
