// Who takes gradients as they are computed: then they need not be written to an arena, which is larger than the caches,
// and be read from there.
#pragma once

#include <cstdint>

namespace dtrain::engine {

template <class T>
class GradientTaker {
 public:
  virtual ~GradientTaker() = default;

  // rows x width gradients, in rows that lie `ld` apart. `place` is where the first would lie in the arena, with rows
  // `stride` apart there. Each element of the arena comes once a step, by any thread.
  virtual void take(const T* place, int64_t stride, int64_t rows, int64_t width, const T* values, int64_t ld) = 0;
  // What take() will read and write of its own for the element at `place`, and as far apart: to be asked for ahead.
  virtual const T* wanted(const T* place) const = 0;
};

}  // namespace dtrain::engine
