// Convolutions and their gradients, each the way that is faster for its shape.
#pragma once

#include <algorithm>

#include "engine/kernels/direct_conv_kernel.h"
#include "engine/kernels/winograd_kernel.h"

namespace dtrain::engine::DTRAIN_ISA {

// Where channels are few, or outputs, making planes takes longer than what they save.
inline bool goes_by_winograd(const ConvShape& s) {
  constexpr int64_t kChannels = 16, kOutputs = 4;
  return s.kernel == 3 && std::min(s.in_channels, s.out_channels) >= kChannels &&
         std::min(s.out_height(), s.out_width()) >= kOutputs;
}

inline int64_t filter_room(const ConvShape& s) { return goes_by_winograd(s) ? winograd_filters(s) : 0; }

template <class T>
const T* ready_filters(const ConvShape& s, const T* filters, T* room) {
  if (!goes_by_winograd(s)) return filters;
  planes_of_filters(s, filters, room);
  return room;
}

template <class T>
void conv(const ConvShape& s, const T* in, const T* filters, T* out) {
  const auto by = goes_by_winograd(s) ? &winograd_conv<T> : &direct_conv<T>;
  by(s, in, filters, out);
}

template <class T>
void conv_filter_gradient(const ConvShape& s, Leaves leaves, const T* in, const T* dout, T* dfilters, bool add) {
  const auto by = goes_by_winograd(s) ? &winograd_filter_gradient<T> : &direct_filter_gradient<T>;
  by(s, leaves, in, dout, dfilters, add);
}

}  // namespace dtrain::engine::DTRAIN_ISA
