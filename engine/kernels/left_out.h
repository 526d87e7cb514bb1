// Which products are made without what a matrix has very often (Common, kernels.h): zeros, or the background of images.
// Leaving zeros out changes no bit, so it is tried (trial.h). Leaving another value out does: that goes by what all who share a
// batch say alike. Kernels that can't leave out what they are given multiply all of it.
#pragma once

#include <cstdint>

namespace dtrain::engine {

inline constexpr int64_t kSparseStep = 16;   // columns come in so many

// By the sizes of a product, of a left matrix whose rows are contiguous; and of a gradient [m][n].
inline bool may_leave_out(int64_t n_count, int64_t k_count) { return n_count % kSparseStep == 0 && n_count >= 128 && k_count >= 128; }
inline bool may_leave_out_of_gradient(int64_t m_count, int64_t n_count) {
  return m_count >= 128 && n_count >= 128 && m_count % kSparseStep == 0 && n_count % kSparseStep == 0;
}

// Of how many elements a background must be before it is left out: less does not pay, or not on every processor that runs these
// kernels.
struct BackgroundShares {
  float of_wide = 0.7f, of_narrow = 0.7f;
  float of_gradient = 0.7f;
  int64_t shortest_leaf = 16;   // with a gradient

  bool pays(float share, int64_t columns) const { return share >= (columns >= kWide ? of_wide : of_narrow); }
  bool pays_in_gradient(float share, int64_t leaf) const { return share >= of_gradient && leaf >= shortest_leaf; }

 private:
  static constexpr int64_t kWide = 512;
};

}  // namespace dtrain::engine
