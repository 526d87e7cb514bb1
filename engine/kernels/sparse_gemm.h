// Products of a matrix that has one value very often (GemmA::common), which are left out: A B is (A - common) B, of which most
// elements of the left one are zero, and common times the sums of B's columns.
//
// Where that value is zero, as in what has gone through a ReLU, every element is the sum that gemm_kernel.h makes, in the
// same order, without the products that are zero: it has the same bits, but that a zero is never negative. Nobody sees that: what is
// added to something else has the same bits for either zero, and what optimisers keep begins with positive ones (start.cc). So who
// shares a batch may choose by what is their own of it. Of another value the bits are others, and the choice is made by what all of
// them know. Either way a row of the result has the same bits whatever the others are.
//
// What is not common in a row of A (uncommon_masks.h) goes over a panel of B that lies in the first-level cache. On a Zen 4, where that
// is half of A it takes three quarters of the time, where it is a quarter less than half; where it is more than three quarters,
// longer. A processor that begins two vectors' multiply-adds a cycle gains little before two thirds are left out, and its gradients nothing
// before four fifths. So whether zeros are left out is tried (trial.h).
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "engine/kernels/crew.h"
#include "engine/kernels/gemm_tile.h"
#include "engine/kernels/pack.h"
#include "engine/kernels/uncommon_masks.h"

namespace dtrain::engine::DTRAIN_ISA {

// Of a panel: as many sums are on their way at once as it takes to wait for none.
inline constexpr int kSparseVectors = 8;
inline constexpr int64_t kSparseColumns = kSparseVectors * kLanes<float>;
// Elements of a panel that stay in the first-level cache while all of A goes over them.
inline constexpr int64_t kSparsePanel = 8192;
// What goes over a panel at once: more would push everything else out of the second-level cache.
inline constexpr int64_t kSparseElements = int64_t{1} << 18;
// By a general register with AVX-512: a load into a vector would wait for those of the panel, of which some processors make one a cycle.
DTRAIN_INLINE Vector<float> splat_between_loads(const float* value) {
#if DTRAIN_VECTOR_BYTES == 64
  int32_t bits;
  std::memcpy(&bits, value, sizeof bits);
  asm("" : "+r"(bits));   // or the compiler makes it a load
  return reinterpret_cast<Vector<float>>(_mm512_set1_epi32(bits));
#else
  return splat(*value);
#endif
}

// `acc` += the elements that the mask names times their rows of a panel. less(element): without what is common.
template <int64_t kPanelColumns, int C, class Less>
DTRAIN_INLINE void add_uncommon(uint64_t mask, const float* elements, const float* panel, const Less& less, Vector<float> (&acc)[1][C]) {
  // In registers: the compiler would take sums apart and keep what does not change elsewhere.
  asm("" : "+r"(mask), "+r"(elements), "+r"(panel));
  for (; mask != 0; mask &= mask - 1) {
    const auto k = std::countr_zero(mask);
    const Vector<float> each = less(splat_between_loads(elements + k));
    const float* row = panel + k * kPanelColumns;
    asm("" : "+r"(row));
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) acc[0][c] += each * load(row + c * kLanes<float>);
  }
}

// `width` columns of B from n on, as rows go over them.
template <int64_t kPanelColumns>
void pack_sparse_panel(const GemmB<float>& b, int64_t n, int64_t width, int64_t k_count, float* to) {
  if (b.column_stride == 1 && width == kPanelColumns) return pack_panels<float, kPanelColumns>(b, n, 1, k_count, to, 0);
  pack_panel(b, n, width, k_count, to, kPanelColumns);
}

// What sums over these rows of a panel begin with: common times the sums of its columns.
template <int64_t kPanelColumns>
void begin_sums(float common, const float* panel, int64_t rows, float* begin) {
  constexpr int kVectorsOfPanel = static_cast<int>(kPanelColumns) / kLanes<float>;
  Vector<float> sums[kVectorsOfPanel] = {};
  for (int64_t k = 0; k < rows; ++k) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectorsOfPanel; ++v) sums[v] += load(panel + k * kPanelColumns + v * kLanes<float>);
  }
#pragma GCC unroll 8
  for (int v = 0; v < kVectorsOfPanel; ++v) store(begin + v * kLanes<float>, sums[v] * common);
}

// body(std::integral_constant<int, C>()), of C vectors that are `width` elements.
template <int64_t kPanelColumns, class Body>
DTRAIN_INLINE void for_width(int64_t width, const Body& body) {
  constexpr int kVectorsOfStep = static_cast<int>(kSparseStep) / kLanes<float>;
  [&]<int... kStep>(std::integer_sequence<int, kStep...>) {
    ((width == (kStep + 1) * kSparseStep ? body(std::integral_constant<int, (kStep + 1) * kVectorsOfStep>()) : void()), ...);
  }(std::make_integer_sequence<int, kPanelColumns / kSparseStep>());
}

// Whether each hand has a whole panel.
template <int64_t kPanelColumns>
bool is_for_all_hands(int64_t n_count, const Crew* crew) {
  return crew == nullptr || n_count >= kPanelColumns * crew->hands();
}

// Whether what is common in A can be left out.
inline bool can_leave_out(int64_t m_count, int64_t n_count, int64_t k_count, const GemmA<float>& a, const Then<float>& then) {
  return a.common.share > 0 && a.column_stride == 1 && may_leave_out(n_count, k_count) && m_count > 0 && then.gelu_slope == nullptr && then.plus == nullptr;
}

struct SparseProduct {
  int64_t n_count, k_count;
  const GemmA<float>& a;
  const GemmB<float>& b;
  float* c;
  int64_t ldc;
  const Then<float>& then;

  void rows(Range rows, Crew* crew) const {
    const GemmA<float> of_rows{a.data + rows.begin * a.row_stride, a.row_stride, 1, a.common};
    Crew::share_prepared(crew, n_count, kSparseColumns, kSparseColumns, [&] {
      return [this, rows, masks = RowMasks(of_rows, rows.size(), k_count)](Range columns) {
        float* const panel = scratch<float>(Scratch::Panel, k_count * kSparseColumns);
        for (int64_t n = columns.begin; n < columns.end; n += kSparseColumns) {
          const int64_t width = std::min(kSparseColumns, columns.end - n);
          pack_sparse_panel<kSparseColumns>(b, n, width, k_count, panel);
          alignas(64) std::array<float, kSparseColumns> begin{};
          if (a.common.value != 0) begin_sums<kSparseColumns>(a.common.value, panel, k_count, begin.data());
          for_width<kSparseColumns>(width, [&](auto vectors) {
            if (a.common.value == 0) return columns_of<vectors>(masks, rows, n, panel, begin.data(), [](Vector<float> x) { return x; });
            columns_of<vectors>(masks, rows, n, panel, begin.data(), [common = splat(a.common.value)](Vector<float> x) { return x - common; });
          });
        }
      };
    });
  }

 private:
  template <int C, class Less>
  __attribute__((noinline)) void columns_of(const RowMasks& masks, Range rows, int64_t n, const float* panel, const float* begin, const Less& less) const {
    constexpr int64_t kRowsAtOnce = kSparsePanel / kSparseColumns;
    for (int64_t first = 0; first < k_count; first += kRowsAtOnce) {
      const int64_t last = std::min(first + kRowsAtOnce, k_count);
      for (int64_t m = rows.begin; m < rows.end; ++m) {
        const int64_t at = m * ldc + n;
        const float* const before = first > 0 ? c + at : begin;
        Vector<float> acc[1][C];
#pragma GCC unroll 8
        for (int v = 0; v < C; ++v) acc[0][v] = load(before + v * kLanes<float>);
        const uint64_t* const mask = masks.row(m - rows.begin);
        for (int64_t k = first; k < last; k += kMaskBits) {
          add_uncommon<kSparseColumns>(mask[k / kMaskBits], a.data + m * a.row_stride + k, panel + k * kSparseColumns, less, acc);
        }
        if (last == k_count) end(n, at, acc);
        store_rows<float>(acc, c + at, ldc);
      }
    }
  }
  template <int C>
  void end(int64_t n, int64_t at, Vector<float> (&acc)[1][C]) const {
    const auto place = [at](const float* matrix) { return matrix == nullptr ? nullptr : matrix + at; };
    end_tile<float>({.bias = then.bias == nullptr ? nullptr : then.bias + n, .relu = then.relu, .times = place(then.times), .where = place(then.where)},
                    ldc, acc);
  }
};

inline void sparse_gemm_then(int64_t m_count, int64_t n_count, int64_t k_count, const GemmA<float>& a, const GemmB<float>& b, float* c,
                             int64_t ldc, const Then<float>& then, Crew* crew) {
  const SparseProduct product{n_count, k_count, a, b, c, ldc, then};
  const int64_t at_once = std::max<int64_t>(1, kSparseElements / k_count);
  const auto blocks = [&](Range rows, Crew* together) {
    for (int64_t m = rows.begin; m < rows.end; m += at_once) product.rows({m, std::min(m + at_once, rows.end)}, together);
  };
  if (is_for_all_hands<kSparseColumns>(n_count, crew)) return blocks({0, m_count}, crew);
  const int64_t of_hand = (m_count + crew->hands() - 1) / crew->hands();
  Crew::share(crew, m_count, of_hand, 1, [&](Range rows) { blocks(rows, nullptr); });
}

}  // namespace dtrain::engine::DTRAIN_ISA
