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
    const Block* const own = blocks_ + top_;
    const int64_t siblings = siblings_;
    float* const to = blocks_[top_ - siblings].values;
    for (int64_t i = begin * kStrip; i < end * kStrip; i += kLanes<float>) {
      Vector<float> sum = load(own->values + i);
      for (int64_t sibling = 1; sibling <= siblings; ++sibling) sum += load(own[-sibling].values + i);
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

// A product of strips. Those of one matrix are packed and kept in the cache while the other's go over them: with all
// their k, or where k are so many that only few strips would stay, a piece of k after the other. Each hand of a crew
// takes strips of B, and packs A by itself, into its own cache.
class Strips {
 public:
  Strips(const Lines& a, const Lines& b, Leaves leaves)
      : a_(a), b_(b), leaves_(leaves), blocks_(std::bit_width(static_cast<unsigned>(leaves.count))) {
    for (int leaf = 0; leaf < leaves.count; ++leaf) {
      const int64_t size = leaves.ends[leaf] - (leaf == 0 ? 0 : leaves.ends[leaf - 1]);
      chunks_ += std::max<int64_t>(1, (size + kChunk - 1) / kChunk);
    }
  }

  // body(block, m, n, begin, end): rows [begin, end) of the block of C at (m, n).
  template <class Body>
  void for_blocks(Crew* crew, const Body& body) const {
    const int64_t a_strips = strips_of(a_), b_strips = strips_of(b_);
    if (crew == nullptr && b_strips < a_strips) return keep<false>(b_strips, nullptr, a_strips, 1, body);
    keep<true>(a_strips, crew, b_strips, kLeastStrips, body);
  }

 private:
  static constexpr int64_t kLeastStrips = 2;  // of a hand
  static constexpr int64_t kFewKept = 8;
  // That go over others at once: where they lie by rows of k, memory is read along.
  static constexpr int64_t kStripsAtOnce = 4, kBlocksAtOnce = 16;
  static constexpr int64_t kBlocksInTheMaking = 256;

  static int64_t strips_of(const Lines& lines) { return (lines.lines + kStrip - 1) / kStrip; }

  // In parts of about the same size.
  template <class Part>
  static void for_parts(Range all, int64_t most, const Part& part) {
    const int64_t count = (all.size() + most - 1) / most;
    const auto begin = [&](int64_t i) { return all.begin + all.size() * i / count; };
    for (int64_t i = 0; i < count; ++i) part(Range{begin(i), begin(i + 1)});
  }

  template <bool kKeepsA, class Body>
  void keep(int64_t all, Crew* crew, int64_t others, int64_t least, const Body& body) const {
    const int64_t whole = kKeptBytes / (chunks_ * kChunkBytes);
    if (whole >= std::min(all, kFewKept)) {
      for_parts({0, all}, whole, [&](Range kept) {
        Crew::share_prepared(crew, others, least, least, [&] {
          const char* const packed = pack<kKeepsA>(Piece(leaves_), chunks_, kept);
          return [&, packed](Range strips) { Pass<kKeepsA, Body>(*this, kept, strips, body).go(packed); };
        });
      });
      return;
    }
    for_parts({0, all}, kKeptBytes / (kChunksOfPiece * kChunkBytes), [&](Range kept) {
      Crew::share(crew, others, least, least, [&](Range strips) {
        for_parts(strips, std::max<int64_t>(1, kBlocksInTheMaking / (kept.size() * blocks_)), [&](Range some) {
          Pass<kKeepsA, Body>(*this, kept, some, body).go_by_pieces();
        });
      });
    });
  }

  // From this piece on as many chunks, one piece after the other, and of each its strips. In the scratch.
  template <bool kIsA>
  const char* pack(Piece piece, int64_t chunks, Range strips) const {
    char* const packed = scratch<char>(Scratch::Tiles, strips.size() * chunks * kChunkBytes);
    char* to = packed;
    for (;; piece = piece.next()) {
      for (int64_t i = strips.begin; i < strips.end; ++i, to += piece.size * kChunkBytes) {
        pack_piece<kIsA>(kIsA ? a_ : b_, i * kStrip, 1, piece, to, 0);
      }
      chunks -= piece.size;
      if (chunks == 0) return packed;
    }
  }

  // Strips go over kept ones.
  template <bool kKeepsA, class Body>
  class Pass {
   public:
    Pass(const Strips& of, Range kept, Range strips, const Body& body)
        : of_(of),
          kept_(kept),
          strips_(strips),
          at_once_(std::clamp<int64_t>(kBlocksAtOnce / kept.size(), 1, kStripsAtOnce)),
          packed_(scratch<char>(Scratch::Panel, at_once_ * kChunksOfPiece * kChunkBytes)),
          body_(body) {}

    // A few with all k, and then the next: `kept` are whole.
    void go(const char* kept) {
      Rest<Body> rest(body_);
      make_blocks(at_once_);
      for_parts(strips_, at_once_, [&](Range group) {
        const char* at = kept;
        for (Piece piece(of_.leaves_);; piece = piece.next()) {
          multiply(piece, at, group, blocks_, rest);
          if (piece.is_last()) return;
          at += kept_.size() * piece.size * kChunkBytes;
        }
      });
    }
    // All with a piece of k, and then the next piece.
    void go_by_pieces() {
      Rest<Body> rest(body_);
      make_blocks(strips_.size());
      for (Piece piece(of_.leaves_);; piece = piece.next()) {
        const char* const kept = of_.pack<kKeepsA>(piece, piece.size, kept_);
        for_parts(strips_, at_once_, [&](Range group) {
          multiply(piece, kept, group, blocks_ + (group.begin - strips_.begin) * kept_.size() * of_.blocks_, rest);
        });
        if (piece.is_last()) return;
      }
    }

   private:
    void make_blocks(int64_t strips) {
      blocks_ = scratch<Block>(Scratch::Sums, std::max<int64_t>(2, strips * kept_.size()) * of_.blocks_);
    }
    DTRAIN_INLINE void multiply(const Piece& piece, const char* kept, Range group, Block* blocks,
                                Rest<Body>& rest) const {
      const int64_t bytes = piece.size * kChunkBytes;
      pack_piece<!kKeepsA>(kKeepsA ? of_.b_ : of_.a_, group.begin * kStrip, group.size(), piece, packed_, bytes);
      for (int64_t i = 0; i < group.size(); ++i) {
        for (int64_t j = 0; j < kept_.size(); ++j) {
          // Those of a single piece are free again when the next one's have been multiplied.
          const int64_t index = i * kept_.size() + j;
          Block* const mine = blocks + (of_.chunks_ <= kChunksOfPiece ? index % 2 : index) * of_.blocks_;
          const char *const one = packed_ + i * bytes, *const another = kept + j * bytes;
          multiply_piece(piece, kKeepsA ? another : one, kKeepsA ? one : another, mine, rest);
          const int64_t in_kept = (kept_.begin + j) * kStrip, in_other = (group.begin + i) * kStrip;
          if (piece.is_last()) rest.end_block(kKeepsA ? in_kept : in_other, kKeepsA ? in_other : in_kept);
        }
      }
      rest(kStrip);
    }

    const Strips& of_;
    const Range kept_, strips_;
    const int64_t at_once_;
    char* const packed_;
    Block* blocks_ = nullptr;
    const Body& body_;
    const Tiles tiles_;
  };

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
            if (then.where != nullptr) x = only_where(load_at(then.where + at), x);
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
                      int64_t ldc, bool add, Crew* crew, GradientTaker<float>* taker) {
  using T = float;
  Strips({a.data, a.row_stride, a.column_stride, m_count}, {b.data, b.column_stride, b.row_stride, n_count}, leaves)
      .for_blocks(crew, [&](const float* block, int64_t m, int64_t n, int64_t begin, int64_t end) {
        const int64_t rows = std::min({kStrip, m_count - m, end}), width = std::min(kStrip, n_count - n);
        if (taker != nullptr) {
          if (begin >= rows) return;
          return taker->take(c + (m + begin) * ldc + n, ldc, rows - begin, width, block + begin * kStrip, kStrip);
        }
        for (int64_t r = begin; r < rows; ++r) {
          T* const to = c + (m + r) * ldc + n;
          for_vectors<T>(width, [&](auto load_at, auto store_at) {
            const Vector<T> sum = load_at(block + r * kStrip);
            store_at(to, add ? sum + load_at(to) : sum);
          });
        }
      });
}

}  // namespace dtrain::engine::DTRAIN_ISA
