// A block of kBlockImages images is [channel][row][column][image]: a pixel of one channel, of all images of the block,
// lies together.
#pragma once

#include <cstring>

#include "engine/kernels/kernels.h"
#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

template <class T>
struct PixelOf {
  typedef T Type __attribute__((vector_size(kBlockImages * sizeof(T))));
};
template <class T>
using Pixel = typename PixelOf<T>::Type;
template <class T>
DTRAIN_INLINE Pixel<T> load_pixel(const T* from) {
  Pixel<T> pixel;
  std::memcpy(&pixel, from, sizeof pixel);
  return pixel;
}
template <class T>
DTRAIN_INLINE void store_pixel(T* to, Pixel<T> pixel) {
  std::memcpy(to, &pixel, sizeof pixel);
}

}  // namespace dtrain::engine::DTRAIN_ISA
