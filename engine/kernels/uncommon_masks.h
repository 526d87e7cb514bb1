// Which elements of a matrix are not its common value: a bit for each, in the order in which a product goes over them.
#pragma once

#include <algorithm>
#include <type_traits>

#include "engine/kernels/kernels.h"
#include "engine/kernels/scratch.h"
#include "engine/kernels/transpose.h"
#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

inline constexpr int64_t kMaskBits = 64;
inline constexpr int64_t kLanesOfMask = kMaskBits / kLanes<float>;

inline int64_t masks_of(int64_t elements) { return (elements + kMaskBits - 1) / kMaskBits; }

// Of a mask, the bits of one vector. It is written as part of an integer of 64 bits.
using LaneMask [[gnu::may_alias]] = std::conditional_t<kLanes<float> == 16, uint16_t, uint8_t>;
static_assert(sizeof(LaneMask) * 8 == kLanes<float>);

// Of the first `count` lanes those that are not `common`: what is no number is not.
DTRAIN_INLINE LaneMask differing(Vector<float> x, Vector<float> common, int64_t count = kLanes<float>) {
#if DTRAIN_VECTOR_BYTES == 64
  const unsigned differ = _mm512_cmp_ps_mask(x, common, _CMP_NEQ_UQ);
#else
  const auto differ = static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(x, common, _CMP_NEQ_UQ)));
#endif
  return static_cast<LaneMask>(differ & ((1u << count) - 1));
}

// Of an A whose rows are contiguous: of each row all k.
class RowMasks {
 public:
  RowMasks(const GemmA<float>& a, int64_t rows, int64_t k_count)
      : of_row_(masks_of(k_count)), masks_(scratch<uint64_t>(Scratch::Masks, rows * of_row_)) {
    const Vector<float> common = splat(a.common.value);
    for (int64_t row = 0; row < rows; ++row) {
      const float* const x = a.data + row * a.row_stride;
      auto* const lanes = reinterpret_cast<LaneMask*>(masks_ + row * of_row_);
      int64_t i = 0;
      for (; (i + 1) * kLanes<float> <= k_count; ++i) lanes[i] = differing(load(x + i * kLanes<float>), common);
      for (; i < of_row_ * kLanesOfMask; ++i) {
        const int64_t rest = std::clamp<int64_t>(k_count - i * kLanes<float>, 0, kLanes<float>);
        lanes[i] = rest == 0 ? 0 : differing(load_some(x + i * kLanes<float>, rest), common, rest);
      }
    }
  }
  // One for kMaskBits k.
  const uint64_t* row(int64_t row) const { return masks_ + row * of_row_; }

 private:
  const int64_t of_row_;
  uint64_t* const masks_;
};

// Columns [first, first + columns) of an X [K][...] whose rows are contiguous, turned and less what is common. K is cut into leaves,
// these into chunks of kMaskBits: each leaf has one or more, one mask each.
class TurnedColumns {
 public:
  TurnedColumns(const float* x, int64_t x_stride, float common, int64_t first, int64_t columns, Leaves leaves)
      : common_(splat(common)),
        column_step_(leaves.ends[leaves.count - 1] + kLanes<float>),
        masks_step_(cut(leaves)),
        elements_(scratch<float>(Scratch::Values, columns * column_step_)),
        masks_(scratch<uint64_t>(Scratch::Masks, columns * masks_step_)) {
    std::fill_n(masks_, columns * masks_step_, 0);
    for (int64_t column = 0; column < columns; column += kLanes<float>) {
      turn_some(x + first + column, x_stride, column, std::min<int64_t>(kLanes<float>, columns - column));
    }
  }

  const float* column(int64_t column) const { return elements_ + column * column_step_; }
  int64_t column_step() const { return column_step_; }
  const uint64_t* masks(int64_t column) const { return masks_ + column * masks_step_; }
  int64_t masks_step() const { return masks_step_; }
  int64_t first_chunk(int leaf) const { return first_chunks_[leaf]; }
  const int64_t* begins() const { return begins_; }   // of chunks, and the end

 private:
  static constexpr int64_t kMostLeaves = int64_t{1} << (kTreeLevels - 1);
  static constexpr int64_t kMostChunks = 4 * kMostLeaves;

  // How many chunks there are.
  int64_t cut(Leaves leaves) {
    int64_t chunk = 0, begin = 0;
    for (int leaf = 0; leaf < leaves.count; begin = leaves.ends[leaf++]) {
      first_chunks_[leaf] = chunk;
      begins_[chunk++] = begin;
      while ((begin += kMaskBits) < leaves.ends[leaf]) begins_[chunk++] = begin;
    }
    first_chunks_[leaves.count] = chunk;
    begins_[chunk] = begin;
    return chunk;
  }
  void turn_some(const float* x, int64_t x_stride, int64_t column, int64_t columns) {
    for (int64_t chunk = 0; chunk < masks_step_; ++chunk) {
      for (int64_t k = begins_[chunk]; k < begins_[chunk + 1]; k += kLanes<float>) {
        const int64_t count = std::min<int64_t>(kLanes<float>, begins_[chunk + 1] - k);
        Vector<float> square[kLanes<float>] = {};
        for (int64_t i = 0; i < count; ++i) square[i] = load_some(x + (k + i) * x_stride, columns);
        transpose(square);
        for (int64_t c = 0; c < columns; ++c) {
          auto* const lanes = reinterpret_cast<LaneMask*>(masks_ + (column + c) * masks_step_ + chunk);
          lanes[(k - begins_[chunk]) / kLanes<float>] = differing(square[c], common_, count);
          store(elements_ + (column + c) * column_step_ + k, square[c] - common_);
        }
      }
    }
  }

  int64_t begins_[kMostChunks + 1], first_chunks_[kMostLeaves + 1];
  const Vector<float> common_;
  const int64_t column_step_, masks_step_;
  float* const elements_;
  uint64_t* const masks_;
};

}  // namespace dtrain::engine::DTRAIN_ISA
