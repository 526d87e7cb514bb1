// Memory that a kernel needs while it runs: one block a thread and purpose, grown when it is too small.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrain::engine {

enum class Scratch { Panel, Tiles, Values, Masks, Attention, Sums, Convolution, Count };

void* scratch_bytes(Scratch purpose, size_t bytes);  // aligned to a cache line, valid until the next call

template <class T>
T* scratch(Scratch purpose, int64_t elements) {
  return static_cast<T*>(scratch_bytes(purpose, static_cast<size_t>(elements) * sizeof(T)));
}

}  // namespace dtrain::engine
