// The first bytes both ways on every connection between worker processes.
#pragma once

#include <array>
#include <cstdint>

#include "engine/comm/place.h"
#include "engine/comm/socket.h"

namespace dtrain::engine {

enum class Purpose : uint16_t { Gang = 1, Channel };

struct Hello {
  static constexpr uint32_t kMagic = 0x4e525444;  // "DTRN"
  static constexpr uint16_t kVersion = 3;

  uint32_t magic = kMagic;
  uint16_t version = kVersion;
  Purpose purpose = Purpose::Gang;
  uint64_t key = 0;
  uint32_t process = 0;
  uint32_t processes = 0;
  uint32_t threads = 0;
  uint32_t line = 0;  // of a channel
  union {
    uint64_t layout_hash = 0;
    uint64_t from;  // of a channel: participants
  };
  union {
    uint64_t spec_hash = 0;
    uint64_t to;
  };
  uint64_t host = 0;   // 0 shares with nobody
  uint64_t nonce = 0;  // names the Unix address; 0: none
  std::array<char, 16> instructions = {};
};
static_assert(sizeof(Hello) == 80);

}  // namespace dtrain::engine
