// The table of what the kernel headers define, for the instruction set they were included for.
#pragma once

#include "engine/kernels/attention_kernel.h"
#include "engine/kernels/conv_kernel.h"
#include "engine/kernels/gemm_kernel.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/pool_kernel.h"
#include "engine/kernels/row_kernels.h"

namespace dtrain::engine::DTRAIN_ISA {

template <class T>
constexpr Kernels<T> kernel_table(const char* isa, BackgroundShares background = {}) {
  return {.isa = isa,
          .background = background,
          .gemm = &gemm<T>,
          .gemm_then = &gemm_then<T>,
          .gemm_tree = &gemm_tree<T>,
          .add_bias = &add_bias<T>,
          .add_bias_relu = &add_bias_relu<T>,
          .relu_backward = &relu_backward<T>,
          .standardise_bytes = &standardise<uint8_t, T>,
          .standardise_floats = &standardise<float, T>,
          .add_to = &add_to<T>,
          .sum_rows = &sum_rows<T>,
          .layer_norm = &layer_norm<T>,
          .layer_norm_backward = &layer_norm_backward<T>,
          .softmax_cross_entropy = &softmax_cross_entropy<T>,
          .embed = &embed<T>,
          .position_gradient = &position_gradient<T>,
          .attention = &attention<T>,
          .attention_backward = &attention_backward<T>,
          .filter_room = &filter_room,
          .ready_filters = &ready_filters<T>,
          .conv = &conv<T>,
          .conv_filter_gradient = &conv_filter_gradient<T>,
          .conv_bias_gradient = &conv_bias_gradient<T>,
          .bias_relu_pool = &bias_relu_pool<T>,
          .pool_relu_backward = &pool_relu_backward<T>,
          .rows_to_block = &rows_to_block<T>,
          .block_to_rows = &block_to_rows<T>};
}

}  // namespace dtrain::engine::DTRAIN_ISA
