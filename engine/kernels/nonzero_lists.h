// What of a matrix is not zero, in the order in which a product goes over it: values, and where the row of a panel lies that
// each multiplies. Into the second-level cache it fits, and from there it is read along.
#pragma once

#include <algorithm>
#include <bit>

#include "engine/kernels/kernels.h"
#include "engine/kernels/scratch.h"
#include "engine/kernels/transpose.h"
#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

// What one row multiplies of a panel: [begin, end) of these.
struct NonzeroList {
  const float* values;
  const int32_t* places;   // in bytes
  int64_t begin, end;
};

// Writes a whole vector of each from `at` on, and says how many of its elements count.
DTRAIN_INLINE int append_nonzeros(Vector<float> x, __m512i of_x, float* values, int32_t* places, int64_t at) {
  const __mmask16 kept = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NEQ_UQ);
  _mm512_storeu_ps(values + at, _mm512_maskz_compress_ps(kept, x));
  _mm512_storeu_si512(places + at, _mm512_maskz_compress_epi32(kept, of_x));
  return std::popcount(static_cast<unsigned>(kept));
}
// Of elements k, k + 1, ... of a row.
DTRAIN_INLINE __m512i places_from(int64_t k, int64_t panel_row_bytes) {
  const __m512i ks = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int32_t>(k)), _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  return _mm512_mullo_epi32(ks, _mm512_set1_epi32(static_cast<int32_t>(panel_row_bytes)));
}

// Of an A whose rows are contiguous, in pieces of `piece` k: of each piece all rows.
class RowLists {
 public:
  RowLists(const GemmA<float>& a, int64_t rows, int64_t k_count, int64_t piece, int64_t panel_row_bytes)
      : rows_(rows),
        values_(scratch<float>(Scratch::Values, rows * k_count + kLanes<float>)),
        places_(scratch<int32_t>(Scratch::Places, rows * k_count + kLanes<float>)),
        begins_(scratch<int32_t>(Scratch::Begins, (k_count + piece - 1) / piece * rows + 1)) {
    const __m512i further = _mm512_set1_epi32(static_cast<int32_t>(kLanes<float> * panel_row_bytes));
    int64_t at = 0, list = 0;
    for (int64_t from = 0; from < k_count; from += piece) {
      const int64_t to = std::min(from + piece, k_count);
      for (int64_t row = 0; row < rows; ++row) {
        begins_[list++] = static_cast<int32_t>(at);
        const float* const x = a.data + row * a.row_stride;
        int64_t k = from;
        __m512i places = places_from(from, panel_row_bytes);
        for (; k + kLanes<float> <= to; k += kLanes<float>, places = _mm512_add_epi32(places, further)) {
          at += append_nonzeros(load(x + k), places, values_, places_, at);
        }
        if (k < to) at += append_nonzeros(load_some(x + k, to - k), places, values_, places_, at);
      }
    }
    begins_[list] = static_cast<int32_t>(at);
  }
  NonzeroList list(int64_t row, int64_t piece) const {
    const int32_t* const begin = begins_ + piece * rows_ + row;
    return {values_, places_, begin[0], begin[1]};
  }

 private:
  const int64_t rows_;
  float* const values_;
  int32_t *const places_, *const begins_;
};

// Of columns [first, first + columns) of an X [K][...] whose rows are contiguous, K cut into leaves: of each column all leaves.
class ColumnLists {
 public:
  ColumnLists(const float* x, int64_t x_stride, int64_t first, int64_t columns, Leaves leaves, int64_t panel_row_bytes)
      : leaves_(leaves.count),
        room_(leaves.ends[leaves.count - 1] + kLanes<float>),
        values_(scratch<float>(Scratch::Values, columns * room_)),
        places_(scratch<int32_t>(Scratch::Places, columns * room_)),
        begins_(scratch<int32_t>(Scratch::Begins, columns * (leaves_ + 1))) {
    for (int64_t column = 0; column < columns; column += kLanes<float>) {
      list_some(x + first + column, x_stride, column, std::min<int64_t>(kLanes<float>, columns - column), leaves, panel_row_bytes);
    }
  }
  struct Column {
    const float* values;
    const int32_t *places, *begins;
    NonzeroList leaf(int64_t leaf) const { return {values, places, begins[leaf], begins[leaf + 1]}; }
  };
  Column column(int64_t column) const { return {values_ + column * room_, places_ + column * room_, begins_ + column * (leaves_ + 1)}; }

 private:
  void list_some(const float* x, int64_t x_stride, int64_t column, int64_t columns, Leaves leaves, int64_t panel_row_bytes) {
    int32_t at[kLanes<float>] = {};
    int64_t k = 0;
    for (int leaf = 0; leaf < leaves.count; ++leaf) {
      for (int64_t c = 0; c < columns; ++c) begins_[(column + c) * (leaves_ + 1) + leaf] = at[c];
      while (k < leaves.ends[leaf]) {
        const int64_t count = std::min<int64_t>(kLanes<float>, leaves.ends[leaf] - k);
        Vector<float> square[kLanes<float>] = {};
        for (int64_t i = 0; i < count; ++i) square[i] = load_some(x + (k + i) * x_stride, columns);
        transpose(square);
        const __m512i places = places_from(k, panel_row_bytes);
        for (int64_t c = 0; c < columns; ++c) {
          const int64_t of_column = (column + c) * room_;
          at[c] += append_nonzeros(square[c], places, values_ + of_column, places_ + of_column, at[c]);
        }
        k += count;
      }
    }
    for (int64_t c = 0; c < columns; ++c) begins_[(column + c) * (leaves_ + 1) + leaves_] = at[c];
  }

  const int64_t leaves_, room_;
  float* const values_;
  int32_t *const places_, *const begins_;
};

}  // namespace dtrain::engine::DTRAIN_ISA
