// A length in parts that differ by one at most.
#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/kernels/kernels.h"

namespace dtrain::engine::DTRAIN_ISA {

// [0, length) in parts, of which the first may be longer than the others by one; nothing in none.
struct EvenParts {
  EvenParts(int64_t length, int64_t parts)
      : count(parts), each(parts == 0 ? 0 : length / parts), longer(parts == 0 ? 0 : length % parts) {}
  static EvenParts of_at_most(int64_t most, int64_t length) { return {length, (length + most - 1) / most}; }
  int64_t begin(int64_t i) const { return i * each + std::min(i, longer); }
  Range operator[](int64_t i) const { return {begin(i), begin(i + 1)}; }
  const int64_t count, each, longer;
};

}  // namespace dtrain::engine::DTRAIN_ISA
