// Sums of float arrays, as wide as this processor can: additions alone, so the same bits at any
// width. `out` may be one of the operands, but not overlap one otherwise.
#pragma once

#include <cstdint>

namespace dtrain::engine {

void add(float* out, const float* a, const float* b, int64_t count);
// (a + b) + (c + d)
void add(float* out, const float* a, const float* b, const float* c, const float* d, int64_t count);

}  // namespace dtrain::engine
