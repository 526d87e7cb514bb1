// Matrix products by AMX, which multiplies bfloat16 and sums floats: six products of the parts of two floats
// (split_tiles.h). 32 of them are summed before the sum is rounded to what there is already, so that a product is
// as near to the true one as one of floats, or nearer.
//
// As with gemm_kernel.h an element has the same bits wherever in the matrix it lies and whatever lies beside it.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>

#include "engine/kernels/activations.h"
#include "engine/kernels/crew.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/scratch.h"
#include "engine/kernels/split_tiles.h"
#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

// A strip is two tiles wide: a block of C is what a strip of A and one of B make.
inline constexpr int64_t kStrip = 2 * kTileRows;
inline constexpr int64_t kChunkBytes = 2 * kTilesOfChunk * kTileBytes;  // of a strip
// Chunks of a strip that are packed and multiplied before those of others: fewer, and a block is stored and loaded
// again more often; more, and less stays in the second-level cache.
inline constexpr int64_t kChunksOfPiece = 16;
// What of packed strips is to stay there while others go over it.
inline constexpr int64_t kKeptBytes = 5 << 18;

// All eight tiles are whole ones; what a matrix has less of is zeros.
class Tiles {
 public:
  Tiles() {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } shapes;
    asm volatile("" ::"m"(shapes));
    _tile_loadconfig(&shapes);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// A block of C, in memory.
struct Block {
  alignas(64) float values[kStrip * kStrip];
};

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
  int leaf_;  // where the next one begins
  int64_t k_;
};

// Strips next to each other, from `line` on, each `strip_bytes` after the one before: of each chunk the parts, and
// of each part two tiles. Memory is read along.
template <bool kIsA>
void pack_piece(const Lines& from, int64_t line, int64_t strips, const Piece& piece, char* to, int64_t strip_bytes) {
  for (int64_t i = 0; i < piece.size; ++i, to += kChunkBytes) {
    const Chunk& chunk = piece.chunks[static_cast<size_t>(i)];
    for (int64_t tile = 0; tile < 2 * strips; ++tile) {
      const int64_t first = line + tile * kTileRows, lines = from.lines - first;
      const float* const at = from.data + first * from.line_stride + chunk.k * from.k_stride;
      char* const tiles = to + tile / 2 * strip_bytes + tile % 2 * kTileBytes;
      const auto square = [&](const float* data, int64_t ks) {
        return kIsA ? Square{data, from.line_stride, from.k_stride, lines, ks}
                    : Square{data, from.k_stride, from.line_stride, ks, lines};
      };
      if (chunk.count > kShortChunk) {
        split_squares<kIsA ? 0 : kChunk>(square(at, chunk.count),
                                         square(at + kTileRows * from.k_stride, chunk.count - kTileRows), tiles,
                                         2 * kTileBytes);
      } else if (chunk.count > 0) {
        split_square<kIsA>(square(at, chunk.count), tiles, 2 * kTileBytes);
      }
    }
  }
}

// The product of chunks of a strip of A and one of B into `block`, or what is there goes on. meanwhile(n) is what
// can be done while tiles are multiplied, n rows of a block of it; it is called for all rows.
template <class Meanwhile>
DTRAIN_INLINE void multiply(const Chunk* chunks, int64_t count, const char* a, const char* b, float* block,
                            const Meanwhile& meanwhile) {
  constexpr int64_t kRowBytes = kStrip * static_cast<int64_t>(sizeof(float));
  asm volatile("" ::: "memory");
  if (chunks->begins) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, block, kRowBytes);
    _tile_loadd(1, block + kTileRows, kRowBytes);
    _tile_loadd(2, block + kTileRows * kStrip, kRowBytes);
    _tile_loadd(3, block + kTileRows * kStrip + kTileRows, kRowBytes);
  }
#define DTRAIN_LOAD_A(part)                       \
  _tile_loadd(4, a + (2 * (part)) * kTileBytes, 64); \
  _tile_loadd(5, a + (2 * (part) + 1) * kTileBytes, 64)
#define DTRAIN_LOAD_B(part)                       \
  _tile_loadd(6, b + (2 * (part)) * kTileBytes, 64); \
  _tile_loadd(7, b + (2 * (part) + 1) * kTileBytes, 64)
#define DTRAIN_MULTIPLY        \
  _tile_dpbf16ps(0, 4, 6);     \
  _tile_dpbf16ps(1, 4, 7);     \
  _tile_dpbf16ps(2, 5, 6);     \
  _tile_dpbf16ps(3, 5, 7)
  for (int64_t i = 0; i < count; ++i, a += kChunkBytes, b += kChunkBytes) {
    if (chunks[i].count > kShortChunk) {
      DTRAIN_LOAD_A(2);
      DTRAIN_LOAD_B(0);
      DTRAIN_MULTIPLY;
      meanwhile(6);
      DTRAIN_LOAD_A(0);
      DTRAIN_MULTIPLY;
      meanwhile(6);
      DTRAIN_LOAD_B(2);
      DTRAIN_MULTIPLY;
      meanwhile(6);
      DTRAIN_LOAD_B(1);
      DTRAIN_MULTIPLY;
      meanwhile(6);
      DTRAIN_LOAD_A(1);
      DTRAIN_MULTIPLY;
      meanwhile(6);
      DTRAIN_LOAD_B(0);
      DTRAIN_MULTIPLY;
      meanwhile(6);
    } else if (chunks[i].count > 0) {
      DTRAIN_LOAD_A(1);
      DTRAIN_LOAD_B(2);
      DTRAIN_MULTIPLY;
      meanwhile(12);
      DTRAIN_LOAD_A(0);
      DTRAIN_LOAD_B(1);
      DTRAIN_MULTIPLY;
      meanwhile(12);
      DTRAIN_LOAD_B(0);
      DTRAIN_MULTIPLY;
      meanwhile(12);
    }
  }
  meanwhile(kStrip);
#undef DTRAIN_MULTIPLY
#undef DTRAIN_LOAD_B
#undef DTRAIN_LOAD_A
  _tile_stored(0, block, kRowBytes);
  _tile_stored(1, block + kTileRows, kRowBytes);
  _tile_stored(2, block + kTileRows * kStrip, kRowBytes);
  _tile_stored(3, block + kTileRows * kStrip + kTileRows, kRowBytes);
  asm volatile("" ::: "memory");
}

// What is left to do with a block when a leaf of it has been multiplied: rows of it, from the first to the last.
// `blocks` are those of the leaves that wait for their siblings, the outermost first, and then its own.
template <class Body>
class Rest {
 public:
  explicit Rest(const Body& body) : body_(body) {}
  // The leaf's is added to those whose right sibling it is, in the place of the outermost.
  void end_leaf(Block* blocks, int leaf) {
    blocks_ = blocks;
    top_ = std::popcount(static_cast<unsigned>(leaf));
    siblings_ = std::countr_one(static_cast<unsigned>(leaf));
    is_whole_ = false;
    row_ = siblings_ == 0 ? kStrip : 0;
  }
  // It was the last: what there is then is the block of C at (m, n).
  void end_block(int64_t m, int64_t n) {
    is_whole_ = true;
    m_ = m;
    n_ = n;
    row_ = 0;
  }
  void operator()(int64_t rows) {
    if (row_ >= kStrip) return;
    const int64_t end = std::min(kStrip, row_ + rows);
    if (siblings_ > 0) add(row_, end);
    if (is_whole_) body_(blocks_[top_ - siblings_].values, m_, n_, row_, end);
    row_ = end;
  }

 private:
  void add(int64_t begin, int64_t end) const {
    const float* const sums = blocks_[top_].values;
    float* const to = blocks_[top_ - siblings_].values;
    for (int64_t i = begin * kStrip; i < end * kStrip; i += kLanes<float>) {
      Vector<float> sum = load(sums + i);
      for (int64_t sibling = 1; sibling <= siblings_; ++sibling) sum += load(blocks_[top_ - sibling].values + i);
      store(to + i, sum);
    }
  }

  const Body& body_;
  Block* blocks_ = nullptr;
  int64_t siblings_ = 0, top_ = 0;
  bool is_whole_ = false;
  int64_t m_ = 0, n_ = 0, row_ = kStrip;
};

// What a piece of a strip of A and one of B add to the block that they make.
template <class Rest>
inline void multiply_piece(const Piece& piece, const char* a, const char* b, Block* blocks, Rest& rest) {
  for (int64_t i = 0; i < piece.size;) {
    const Chunk* const chunks = piece.chunks.data() + i;
    int64_t count = 1;
    while (i + count < piece.size && chunks[count].leaf == chunks->leaf) ++count;
    multiply(chunks, count, a + i * kChunkBytes, b + i * kChunkBytes,
             blocks[std::popcount(static_cast<unsigned>(chunks->leaf))].values, [&](int64_t rows) { rest(rows); });
    if (chunks[count - 1].ends) rest.end_leaf(blocks, chunks->leaf);
    i += count;
  }
}

// A product of strips. Those of one matrix are packed once and kept while the other's go over them. Each hand of a
// crew takes strips of B, and packs all of A: from its own cache that is faster than from another's.
class Strips {
 public:
  Strips(const Lines& a, const Lines& b, Leaves leaves) : a_(a), b_(b), leaves_(leaves), blocks_(std::bit_width(static_cast<unsigned>(leaves.count))) {
    for (int leaf = 0; leaf < leaves.count; ++leaf) {
      const int64_t size = leaves.ends[leaf] - (leaf == 0 ? 0 : leaves.ends[leaf - 1]);
      chunks_ += std::max<int64_t>(1, (size + kChunk - 1) / kChunk);
    }
  }

  // body(block, m, n, begin, end): rows [begin, end) of the block of C at (m, n).
  template <class Body>
  void for_blocks(Crew* crew, const Body& body) {
    const int64_t a_strips = strips_of(a_), b_strips = strips_of(b_);
    const int64_t most = std::max<int64_t>(1, kKeptBytes / (chunks_ * kChunkBytes));
    if (crew == nullptr && b_strips < a_strips) {
      for_parts({0, b_strips}, most, [&](Range kept) {
        char* const packed = scratch<char>(Scratch::Tiles, kept.size() * chunks_ * kChunkBytes);
        pack<false>(kept, packed);
        go_over<true>(kept, packed, {0, a_strips}, body);
      });
    } else {
      for_parts({0, a_strips}, most, [&](Range kept) {
        Crew::share_prepared(crew, b_strips, kLeastStrips, kLeastStrips, [&] {
          char* const packed = scratch<char>(Scratch::Tiles, kept.size() * chunks_ * kChunkBytes);
          pack<true>(kept, packed);
          return [&, packed](Range strips) { go_over<false>(kept, packed, strips, body); };
        });
      });
    }
  }

 private:
  static constexpr int64_t kLeastStrips = 2;
  // That go over others at once: where they lie by rows of k, memory is read along.
  static constexpr int64_t kStripsAtOnce = 4, kBlocksAtOnce = 16;

  static int64_t strips_of(const Lines& lines) { return (lines.lines + kStrip - 1) / kStrip; }

  // In parts of about the same size.
  template <class Part>
  static void for_parts(Range all, int64_t most, const Part& part) {
    const int64_t count = (all.size() + most - 1) / most;
    for (int64_t i = 0; i < count; ++i) part({all.begin + all.size() * i / count, all.begin + all.size() * (i + 1) / count});
  }

  // Pieces lie one after the other, and of each its strips.
  template <bool kIsA>
  void pack(Range strips, char* to) const {
    for (Piece piece(leaves_);; piece = piece.next()) {
      const int64_t bytes = piece.size * kChunkBytes;
      for (int64_t i = strips.begin; i < strips.end; ++i, to += bytes) {
        pack_piece<kIsA>(kIsA ? a_ : b_, i * kStrip, 1, piece, to, 0);
      }
      if (piece.is_last()) return;
    }
  }

  // `strips` are of A, or of B.
  template <bool kIsA, class Body>
  void go_over(Range kept, const char* packed_kept, Range strips, const Body& body) const {
    const Tiles tiles;
    const int64_t at_once = std::clamp<int64_t>(kBlocksAtOnce / kept.size(), 1, kStripsAtOnce);
    Block* const blocks = scratch<Block>(Scratch::Sums, std::max<int64_t>(2, at_once * kept.size()) * blocks_);
    char* const packed = scratch<char>(Scratch::Panel, at_once * kChunksOfPiece * kChunkBytes);
    Rest<Body> rest(body);
    for_parts(strips, at_once, [&](Range group) {
      const char* other = packed_kept;
      for (Piece piece(leaves_);; piece = piece.next()) {
        const int64_t bytes = piece.size * kChunkBytes;
        pack_piece<kIsA>(kIsA ? a_ : b_, group.begin * kStrip, group.size(), piece, packed, bytes);
        for (int64_t i = 0; i < group.size(); ++i) {
          for (int64_t j = 0; j < kept.size(); ++j) {
            // Those of a single piece are free again when the next one's have been multiplied.
            const int64_t index = chunks_ <= kChunksOfPiece ? (i * kept.size() + j) % 2 : i * kept.size() + j;
            Block* const mine = blocks + index * blocks_;
            const char *const one = packed + i * bytes, *const another = other + j * bytes;
            multiply_piece(piece, kIsA ? one : another, kIsA ? another : one, mine, rest);
            const int64_t m = kIsA ? group.begin + i : kept.begin + j, n = kIsA ? kept.begin + j : group.begin + i;
            if (piece.is_last()) rest.end_block(m * kStrip, n * kStrip);
          }
        }
        rest(kStrip);
        if (piece.is_last()) return;
        other += kept.size() * bytes;
      }
    });
  }

  const Lines a_, b_;
  const Leaves leaves_;
  int64_t chunks_ = 0;
  const int64_t blocks_;  // of leaves that may wait, and one more
};

inline void multiply_then(int64_t m_count, int64_t n_count, int64_t k_count, GemmA<float> a, GemmB<float> b, float* c,
                      int64_t ldc, const Then<float>& then, Crew* crew) {
  using T = float;
  Strips({a.data, a.row_stride, a.column_stride, m_count}, {b.data, b.column_stride, b.row_stride, n_count},
         {&k_count, 1})
      .for_blocks(crew, [&](const float* block, int64_t m, int64_t n, int64_t begin, int64_t end) {
        const int64_t rows = std::min(kStrip, m_count - m), width = std::min(kStrip, n_count - n);
        for (int64_t r = begin; r < std::min(rows, end); ++r) {
          const int64_t at = (m + r) * ldc + n;
          for_vectors<T>(width, [&](auto load_at, auto store_at) {
            Vector<T> x = load_at(block + r * kStrip);
            if (then.plus != nullptr) x += load_at(then.plus + at);
            if (then.bias != nullptr) x += load_at(then.bias + n);
            if (then.relu) x = larger(x, Vector<T>{});
            if (then.times != nullptr) x *= load_at(then.times + at);
            if (then.gelu_slope != nullptr) {
              const Gelu<T> y = gelu<T>(x);
              store_at(then.gelu_slope + at, y.slope);
              x = y.value;
            }
            store_at(c + at, x);
          });
        }
      });
}

inline void multiply_tree(int64_t m_count, int64_t n_count, Leaves leaves, GemmA<float> a, GemmB<float> b, float* c,
                      int64_t ldc, bool add, Crew* crew) {
  using T = float;
  Strips({a.data, a.row_stride, a.column_stride, m_count}, {b.data, b.column_stride, b.row_stride, n_count}, leaves)
      .for_blocks(crew, [&](const float* block, int64_t m, int64_t n, int64_t begin, int64_t end) {
        const int64_t rows = std::min(kStrip, m_count - m), width = std::min(kStrip, n_count - n);
        for (int64_t r = begin; r < std::min(rows, end); ++r) {
          T* const to = c + (m + r) * ldc + n;
          for_vectors<T>(width, [&](auto load_at, auto store_at) {
            const Vector<T> sum = load_at(block + r * kStrip);
            store_at(to, add ? sum + load_at(to) : sum);
          });
        }
      });
}

}  // namespace dtrain::engine::DTRAIN_ISA
