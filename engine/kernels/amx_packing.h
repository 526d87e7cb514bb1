// The matrices of a product by AMX, made parts (split_tiles.h) in the order in which tiles are multiplied: strips of
// lines, each cut along k into chunks.
#pragma once

#include <algorithm>
#include <array>

#include "engine/kernels/kernels.h"
#include "engine/kernels/split_tiles.h"

namespace dtrain::engine::DTRAIN_ISA {

// A strip is two tiles wide: a block of C is what a strip of A and one of B make.
inline constexpr int64_t kStrip = 2 * kTileRows;
inline constexpr int64_t kChunkBytes = 2 * kTilesOfChunk * kTileBytes;  // of a strip
// Chunks of a strip that are packed and multiplied before those of others: fewer, and a block is stored and loaded
// again more often; more, and less stays in the second-level cache.
inline constexpr int64_t kChunksOfPiece = 16;

// Of A's rows, or of B's columns: `lines` of them, k of each.
struct Lines {
  const float* data;
  int64_t line_stride, k_stride;
  int64_t lines;
};

// k in their order. Chunks begin anew at each leaf's end; an empty leaf has an empty one.
struct Chunk {
  int64_t k, count;
  int leaf;
  bool begins, ends;  // its leaf
};
class Piece {
 public:
  Piece() = default;  // empty
  // The first, and the one that follows another.
  explicit Piece(Leaves leaves) : Piece(leaves, 0, 0) {}
  Piece next() const { return Piece(leaves_, leaf_, k_); }
  bool is_last() const { return leaf_ == leaves_.count; }

  int64_t size = 0;
  std::array<Chunk, kChunksOfPiece> chunks;

 private:
  Piece(Leaves leaves, int leaf, int64_t k) : leaves_(leaves), leaf_(leaf), k_(k) {
    for (; size < kChunksOfPiece && leaf_ < leaves.count; ++size) {
      const int64_t begin = leaf_ == 0 ? 0 : leaves.ends[leaf_ - 1], end = leaves.ends[leaf_];
      const int64_t count = std::min(kChunk, end - k_);
      chunks[static_cast<size_t>(size)] = {k_, count, leaf_, k_ == begin, k_ + count == end};
      k_ += count;
      if (k_ == end) ++leaf_;
    }
  }

  Leaves leaves_;
  int leaf_ = 0;  // where the next one begins
  int64_t k_ = 0;
};

// Makes strips of lines their parts, a few rows at a time, so that it can be done while tiles are multiplied: of each
// chunk the parts, and of each part two tiles. Strips lie one after the other, those of the next piece after them.
template <bool kIsA>
class Packing {
 public:
  Packing() = default;  // of nothing
  // From this piece on as many chunks of each.
  Packing(const Lines& from, Range strips, const Piece& piece, int64_t chunks, char* to)
      : from_(from),
        strips_(strips),
        piece_(piece),
        strip_(strips.begin),
        left_(chunks * strips.size()),
        to_(to),
        packed_(to) {}

  const char* packed() const { return packed_; }
  bool is_done() const { return left_ == 0; }
  // So many chunks are there, as they lie.
  void reach(int64_t chunks) {
    while (there_ < chunks) step();
  }
  void step() {
    const Chunk& chunk = piece_.chunks[static_cast<size_t>(chunk_)];
    const int64_t first = strip_ * kStrip + tile_ * kTileRows, lines = from_.lines - first;
    const float* const at = from_.data + first * from_.line_stride + chunk.k * from_.k_stride;
    char* const tiles = to_ + tile_ * kTileBytes;
    const auto square = [&](const float* data, int64_t ks) {
      return kIsA ? Square{data, from_.line_stride, from_.k_stride, lines, ks}
                  : Square{data, from_.k_stride, from_.line_stride, ks, lines};
    };
    if (chunk.count > kShortChunk) {
      const Square first_ks = square(at, kTileRows);
      const Square other_ks = square(at + kTileRows * from_.k_stride, chunk.count - kTileRows);
      split_squares(first_ks, other_ks, row_, tiles, 2 * kTileBytes);
    } else if (chunk.count > 0) {
      split_square<kIsA>(square(at, chunk.count), row_, tiles, 2 * kTileBytes);
    }
    row_ += kRowsOfStep;
    if (row_ == kTileRows) end_tile();
  }

 private:
  void end_tile() {
    row_ = 0;
    if (++tile_ < 2) return;
    tile_ = 0;
    to_ += kChunkBytes;
    ++there_;
    --left_;
    if (++chunk_ < piece_.size) return;
    chunk_ = 0;
    if (++strip_ < strips_.end || left_ == 0) return;
    strip_ = strips_.begin;
    piece_ = piece_.next();
  }

  Lines from_ = {};
  Range strips_ = {};
  Piece piece_;
  int64_t strip_ = 0, chunk_ = 0, tile_ = 0, row_ = 0;
  int64_t there_ = 0, left_ = 0;
  char* to_ = nullptr;
  const char* packed_ = nullptr;
};

}  // namespace dtrain::engine::DTRAIN_ISA
