// Matrix products by AMX, which multiplies bfloat16 and sums floats: six products of the parts of two floats
// (split_tiles.h). 32 of them are summed before the sum is rounded to what there is already, so that a sum of many
// products is as near to the true one as one of floats, or nearer.
//
// As with gemm_kernel.h an element has the same bits wherever in the matrix it lies and whatever lies beside it.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <bit>

#include "engine/kernels/activations.h"
#include "engine/kernels/amx_packing.h"
#include "engine/kernels/crew.h"
#include "engine/kernels/kernels.h"
#include "engine/kernels/scratch.h"
#include "engine/kernels/vector.h"

namespace dtrain::engine::DTRAIN_ISA {

// What of packed strips is to stay in the second-level cache while others go over it.
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

// The product of `count` chunks of a strip of A and one of B into `block`, or what is there goes on. meanwhile.pack(i)
// makes chunk i of these be there. meanwhile(n) is what can be done while tiles are multiplied, n rows of a block of
// it; it is called for all rows.
template <class Meanwhile>
DTRAIN_INLINE void multiply(const Chunk* chunks, int64_t count, const char* a, const char* b, float* block,
                            Meanwhile& meanwhile) {
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
    meanwhile.pack(i);
    asm volatile("" ::: "memory");  // it stores, and tiles are loaded past the compiler's knowledge
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

// A product of strips. Those of one matrix are packed and kept in the cache while the other's go over them: with all
// their k, or where k are so many that only few strips would stay, a piece of k after the other. Each hand of a crew
// takes strips of B, and packs A by itself, into its own cache. What is packed is packed just before it is multiplied,
// or while what is there already is.
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
    if (a_strips == 0 || b_strips == 0) return;
    if (crew == nullptr && b_strips < a_strips) return keep<false>(b_strips, nullptr, a_strips, 1, body);
    keep<true>(a_strips, crew, b_strips, kLeastStrips, body);
  }

 private:
  static constexpr int64_t kLeastStrips = 2;  // of a hand
  static constexpr int64_t kFewKept = 8;
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
    const bool by_pieces = whole < std::min(all, kFewKept);
    for_parts({0, all}, by_pieces ? kKeptBytes / (kChunksOfPiece * kChunkBytes) : whole, [&](Range kept) {
      Crew::share_prepared(crew, others, least, least, [&] {
        return [&, pass = Pass<kKeepsA, Body>(*this, kept, body)](Range strips) mutable {
          if (!by_pieces) return pass.go(strips);
          for_parts(strips, std::max<int64_t>(1, kBlocksInTheMaking / (kept.size() * blocks_)),
                    [&](Range some) { pass.go_by_pieces(some); });
        };
      });
    });
  }

  template <bool kIsA>
  const Lines& lines() const {
    return kIsA ? a_ : b_;
  }

  // Strips go over kept ones.
  template <bool kKeepsA, class Body>
  class Pass {
   public:
    Pass(const Strips& of, Range kept, const Body& body) : of_(of), kept_(kept), body_(body) {}

    // A strip with all k, and then the next. What is kept stays for further calls.
    void go(Range strips) {
      const Tiles tiles;
      Rest<Body> rest(body_);
      if (kept_packing_.packed() == nullptr) pack_kept(Piece(of_.leaves_), of_.chunks_);
      Block* const blocks = scratch<Block>(Scratch::Sums, (is_one_piece() ? 1 : kept_.size()) * of_.blocks_);
      Turn turn{Piece(of_.leaves_), strips.begin};
      begin(turn);
      for (int64_t chunks = 0;;) {
        const bool ends_strip = turn.piece.is_last();
        const Turn next = ends_strip ? Turn{Piece(of_.leaves_), turn.strip + 1} : Turn{turn.piece.next(), turn.strip};
        const bool is_last = next.strip == strips.end;
        multiply(turn, is_last ? nullptr : &next, chunks * kept_.size(), blocks, rest);
        if (is_last) break;
        chunks = ends_strip ? 0 : chunks + turn.piece.size;
        turn = next;
      }
      rest(kStrip);
    }
    // All with a piece of k, and then the next piece.
    void go_by_pieces(Range strips) {
      const Tiles tiles;
      Rest<Body> rest(body_);
      Block* const blocks = scratch<Block>(Scratch::Sums, strips.size() * kept_.size() * of_.blocks_);
      Turn turn{Piece(of_.leaves_), strips.begin};
      pack_kept(turn.piece, turn.piece.size);
      begin(turn);
      for (;;) {
        const bool ends_piece = turn.strip + 1 == strips.end, is_last = ends_piece && turn.piece.is_last();
        Turn next = turn;
        if (ends_piece && !is_last) next = {turn.piece.next(), strips.begin};
        if (!ends_piece) ++next.strip;
        multiply(turn, is_last ? nullptr : &next, 0,
                 blocks + (turn.strip - strips.begin) * kept_.size() * of_.blocks_, rest);
        if (is_last) break;
        if (ends_piece) pack_kept(next.piece, next.piece.size);
        turn = next;
      }
      rest(kStrip);
    }

   private:
    // A piece of a strip.
    struct Turn {
      Piece piece;
      int64_t strip;
    };
    using Kept = Packing<kKeepsA>;
    using Other = Packing<!kKeepsA>;

    // What is done beside: what is left of the block before, and packing.
    struct Meanwhile {
      Kept& kept;
      Other &other, &next;
      Rest<Body>& rest;
      int64_t in_kept, in_other;  // where the chunks lie that are multiplied

      DTRAIN_INLINE void pack(int64_t chunk) {
        other.reach(in_other + chunk + 1);
        kept.reach(in_kept + chunk + 1);
      }
      DTRAIN_INLINE void operator()(int64_t rows) {
        rest(rows);
        if (!other.is_done()) {
          other.step();
        } else if (!kept.is_done()) {
          kept.step();
        } else if (!next.is_done()) {
          next.step();
        }
      }
    };

    bool is_one_piece() const { return of_.chunks_ <= kChunksOfPiece; }
    void pack_kept(const Piece& piece, int64_t chunks) {
      char* const to = scratch<char>(Scratch::Tiles, kept_.size() * chunks * kChunkBytes);
      kept_packing_ = Kept(of_.lines<kKeepsA>(), kept_, piece, chunks, to);
    }
    void begin(const Turn& turn) { other_[which_] = packing(turn, which_); }
    Other packing(const Turn& turn, int which) const {
      constexpr int64_t kBytes = kChunksOfPiece * kChunkBytes;
      char* const to = scratch<char>(Scratch::Panel, 2 * kBytes) + which * kBytes;
      return Other(of_.lines<!kKeepsA>(), {turn.strip, turn.strip + 1}, turn.piece, turn.piece.size, to);
    }

    // What a piece of a strip and the kept ones, the first of which lies after so many chunks, add to the blocks that
    // they make; the next one is packed meanwhile.
    void multiply(const Turn& turn, const Turn* next, int64_t kept_chunks, Block* blocks, Rest<Body>& rest) {
      Other &other = other_[which_], &other_next = other_[1 - which_];
      other_next = next == nullptr ? Other() : packing(*next, 1 - which_);
      which_ = 1 - which_;
      const Piece& piece = turn.piece;
      for (int64_t j = 0; j < kept_.size(); ++j, kept_chunks += piece.size) {
        multiply_block(piece, {kept_packing_, other, other_next, rest, kept_chunks, 0},
                       blocks + (is_one_piece() ? 0 : j * of_.blocks_));
        const int64_t in_kept = (kept_.begin + j) * kStrip, in_other = turn.strip * kStrip;
        if (piece.is_last()) rest.end_block(kKeepsA ? in_kept : in_other, kKeepsA ? in_other : in_kept);
      }
    }
    DTRAIN_INLINE void multiply_block(const Piece& piece, Meanwhile meanwhile, Block* blocks) const {
      for (int64_t i = 0; i < piece.size;) {
        const char* const kept = meanwhile.kept.packed() + meanwhile.in_kept * kChunkBytes;
        const char* const other = meanwhile.other.packed() + meanwhile.in_other * kChunkBytes;
        const Chunk* const chunks = piece.chunks.data() + i;
        int64_t count = 1;
        while (i + count < piece.size && chunks[count].leaf == chunks->leaf) ++count;
        float* const own = blocks[std::popcount(static_cast<unsigned>(chunks->leaf))].values;
        DTRAIN_ISA::multiply(chunks, count, kKeepsA ? kept : other, kKeepsA ? other : kept, own, meanwhile);
        if (chunks[count - 1].ends) meanwhile.rest.end_leaf(blocks, chunks->leaf);
        i += count;
        meanwhile.in_kept += count;
        meanwhile.in_other += count;
      }
    }

    const Strips& of_;
    const Range kept_;
    const Body& body_;
    Kept kept_packing_;
    Other other_[2];
    int which_ = 0;
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
            if (then.relu) x = relu(x);
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
          // The block that a hand of a crew comes to next lies below, in rows far apart, which the processor does not foresee.
          for (int64_t r = m + kStrip + begin; r < std::min(m + kStrip + rows, m_count); ++r) {
            const T* const row = taker->wanted(c + r * ldc + n);
            for (int64_t j = 0; j < width; j += kLanes<T>) __builtin_prefetch(row + j, 1);
          }
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
