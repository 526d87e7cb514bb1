// How a product is cut, so that what it reads stays in the caches. B is read in place where its rows are contiguous
// and close together, else packed into panels of kColumns; A is read in place, but for a transposed one that several
// panels go over: it is packed into tiles.
#pragma once

#include <algorithm>
#include <array>

#include "engine/kernels/gemm_tile.h"
#include "engine/kernels/pack.h"
#include "engine/kernels/scratch.h"

namespace dtrain::engine::DTRAIN_ISA {

// kColumns columns of B, or what is left of them, as tiles want them: `data` has rows of `ld`, at least
// `vectors` wide.
template <class T>
struct Panel {
  const T* data;
  int64_t ld;
  int64_t width;
  int vectors;

  bool is_full() const { return width == vectors * kLanes<T>; }
  MultiplyTile<T> multiply(int rows) const {
    return kMultiplyTile<T>[static_cast<size_t>(vectors - 1)][static_cast<size_t>(rows - 1)];
  }
  MultiplyLeaves<T> multiply_leaves(int rows, bool in_pairs) const {
    const auto& table = in_pairs ? kMultiplyPairs<T> : kMultiplyLeaves<T>;
    return table[static_cast<size_t>(vectors - 1)][static_cast<size_t>(rows - 1)];
  }
};

// Rows [m, m + rows) of A from some k on, as a tile reads them.
template <class T>
struct TileRows {
  const T* data;
  int64_t row_stride, column_stride;
};

// What of a matrix is to stay in the second-level cache while a product goes over it again and again.
inline constexpr int64_t kBlockBytes = 512 * 1024;
// Tiles that go over a panel in place rather than have it packed for them.
inline constexpr int64_t kTilesInPlace = 12;
// Panels, and tiles of A, that are packed at once.
inline constexpr int64_t kPanelsAtOnce = 8;
inline constexpr int64_t kReadBytes = 256;   // of a row of B, at the least
inline constexpr int64_t kTilesAtOnce = 20;

// A product cut up: columns into chunks of panels, rows into blocks of tiles. For a chunk and a block all
// that is read lies in the second-level cache, and the panel of the moment in the first.
template <class T>
class Cut {
 public:
  Cut(int64_t m_count, int64_t n_count, int64_t k_count, const GemmA<T>& a, const GemmB<T>& b)
      : m_count_(m_count),
        n_count_(n_count),
        k_count_(k_count),
        a_(a),
        b_(b),
        tiles_((m_count + kRows - 1) / kRows),
        tile_step_(kRows * k_count + kLine),
        panel_step_(kColumns<T> * k_count + 4 * kLine) {
    const int64_t row_bytes = std::max<int64_t>(1, k_count) * static_cast<int64_t>(sizeof(T));
    // Blocks of as many tiles each, as far as it goes.
    const int64_t most_tiles = std::max<int64_t>(1, kBlockBytes / row_bytes / kRows);
    const int64_t blocks = std::max<int64_t>(1, (tiles_ + most_tiles - 1) / most_tiles);
    tiles_of_block_ = (tiles_ + blocks - 1) / blocks;
    panels_of_chunk_ = std::max<int64_t>(1, 2 * kBlockBytes / row_bytes / kColumns<T>);
    // What is gone over once only takes the place of what was there before; but rows are read as wide as memory likes.
    if (tiles_ <= tiles_of_block_) panels_of_chunk_ = b.column_stride == 1 ? kReadBytes / kPanelBytes : 1;
    const int64_t panels = (n_count + kColumns<T> - 1) / kColumns<T>;
    panels_of_chunk_ = std::min(panels_of_chunk_, panels);
    // In place where rows of B are contiguous, and not so far apart that they push each other out of the
    // first-level cache while many tiles go over them.
    const bool far_apart =
        b.row_stride * static_cast<int64_t>(sizeof(T)) >= 1024 && m_count > kTilesInPlace * kRows;
    packs_panels_ = b.column_stride != 1 || far_apart;
    // A transposed A is worth packing where several panels go over it.
    packs_tiles_ = a.row_stride == 1 && a.column_stride != 1 && panels > 2;
    if (packs_tiles_) packed_tiles_ = scratch<T>(Scratch::Tiles, tiles_ * tile_step_);
    packed_panels_ = scratch<T>(Scratch::Panel, panels_of_chunk_ * panel_step_);
  }

  // body(panel, n, in, m, rows), of every tile of C's columns.
  template <class Body>
  void run(Range of, const Body& body) {
    const int64_t columns = panels_of_chunk_ * kColumns<T>;
    for (int64_t chunk = of.begin; chunk < of.end; chunk += columns) {
      const int64_t chunk_end = std::min(of.end, chunk + columns);
      pack_chunk(chunk, chunk_end);
      for (int64_t block = 0; block < tiles_; block += tiles_of_block_) {
        const int64_t block_end = std::min(tiles_, block + tiles_of_block_);
        if (packs_tiles_ && !tiles_are_packed_) pack_block(block, block_end);
        for (int64_t n = chunk; n < chunk_end; n += kColumns<T>) {
          const Panel<T> panel = panel_at(n, (n - chunk) / kColumns<T>);
          for (int64_t tile = block; tile < block_end; ++tile) {
            const int64_t m = first_row(tile);
            const int rows = static_cast<int>(first_row(tile + 1) - m);
            body(panel, n, tile_at(tile, m, rows), m, rows);
          }
        }
      }
      tiles_are_packed_ = true;
    }
  }

 private:
  // What lies a power of two apart would be pushed out of the cache by each other; so it doesn't.
  static constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kPanelBytes = kColumns<T> * static_cast<int64_t>(sizeof(T));   // of a row

  // As even as they come: 64 rows are 13 13 13 13 12.
  int64_t first_row(int64_t tile) const { return tile * m_count_ / tiles_; }

  void pack_block(int64_t begin, int64_t end) {
    std::array<int64_t, kTilesAtOnce + 1> firsts;
    while (begin < end) {
      const int64_t tiles = std::min(kTilesAtOnce, end - begin);
      for (int64_t i = 0; i <= tiles; ++i) firsts[static_cast<size_t>(i)] = first_row(begin + i);
      pack_tiles(k_count_, a_, firsts.data(), tiles, packed_tiles_ + begin * tile_step_, tile_step_);
      begin += tiles;
    }
  }
  TileRows<T> tile_at(int64_t tile, int64_t m, int rows) const {
    if (packs_tiles_) return {packed_tiles_ + tile * tile_step_, 1, rows};
    return {a_.data + m * a_.row_stride, a_.row_stride, a_.column_stride};
  }

  Panel<T> unpacked(int64_t n) const {
    Panel<T> panel{b_.data + n, b_.row_stride, std::min<int64_t>(kColumns<T>, n_count_ - n), kVectors};
    if (panel.width <= kLanes<T>) panel.vectors = 1;
    return panel;
  }
  Panel<T> panel_at(int64_t n, int64_t index) const {
    Panel<T> panel = unpacked(n);
    if (!packs_panels_ && panel.is_full()) return panel;
    panel.ld = panel.vectors * kLanes<T>;
    panel.data = packed_panels_ + index * panel_step_;
    return panel;
  }
  void pack_chunk(int64_t n, int64_t end) {
    T* to = packed_panels_;
    while (n < end) {
      int64_t panels = b_.column_stride == 1 ? std::min(kPanelsAtOnce, (end - n) / kColumns<T>) : 0;
      if (panels > 0) {
        if (packs_panels_) pack_panels<T, kColumns<T>>(b_, n, panels, k_count_, to, panel_step_);
      } else {
        const Panel<T> panel = unpacked(n);
        if (packs_panels_ || !panel.is_full()) {
          pack_panel(b_, n, panel.width, k_count_, to, panel.vectors * kLanes<T>);
        }
        panels = 1;
      }
      n += panels * kColumns<T>;
      to += panels * panel_step_;
    }
  }

  const int64_t m_count_, n_count_, k_count_;
  const GemmA<T> a_;
  const GemmB<T> b_;
  const int64_t tiles_, tile_step_, panel_step_;
  int64_t tiles_of_block_, panels_of_chunk_;
  bool packs_panels_, packs_tiles_;
  bool tiles_are_packed_ = false;   // once for all columns
  T *packed_tiles_ = nullptr, *packed_panels_;
};

}  // namespace dtrain::engine::DTRAIN_ISA
