// The gradient of token embeddings that are the classifier too, on the CPU. What the classifier gives and
// what the embedding gives are one sum in each leaf: the tree must not be asked twice. Some tokens at a
// time, so that the sums that wait stay small.
#pragma once

#include <algorithm>

#include "engine/buffer.h"
#include "engine/kernels/kernels.h"
#include "engine/layout.h"

namespace dtrain::engine {

template <class T>
class HostTokenGradient {
 public:
  HostTokenGradient() = default;
  // Of a slice of the vocabulary of so many tokens, of embeddings of `width`, and up to so many rows of a
  // batch.
  HostTokenGradient(Range vocabulary, int64_t /*tokens*/, int64_t width, int64_t /*rows*/)
      : vocabulary_(vocabulary),
        width_(width),
        sums_(kTreeLevels * std::min(vocabulary.size(), kTokenBlock) * width) {}

  // dlogits [rows][logits_width] and what they were made of, x [rows][width]: where the classifier is, else
  // null. dx [rows][width]: where the embedding is, else null.
  void run(const Kernels<T>& kernels, const int32_t* ids, Leaves rows, const T* dlogits, int64_t logits_width,
           const T* x, const T* dx, T* out, bool add) {
    for (int64_t first = 0; first < vocabulary_.size(); first += kTokenBlock) {
      const int64_t tokens = std::min(kTokenBlock, vocabulary_.size() - first);
      const int64_t size = tokens * width_;
      int depth = 0;
      int64_t begin = 0;
      for (int leaf = 0; leaf < rows.count; ++leaf) {
        const int64_t end = rows.ends[leaf];
        T* sum = sums_.data() + depth * size;
        if (dlogits != nullptr) {
          kernels.gemm(tokens, width_, end - begin, {dlogits + begin * logits_width + first, 1, logits_width},
                       {x + begin * width_, width_, 1}, sum, width_, false, nullptr);
        } else {
          std::fill_n(sum, size, T(0));
        }
        for (int64_t row = begin; row < end && dx != nullptr; ++row) {
          const int64_t token = ids[row] - vocabulary_.begin - first;
          if (token >= 0 && token < tokens) kernels.add_to(width_, dx + row * width_, sum + token * width_);
        }
        begin = end;
        for (int rest = leaf; rest & 1; rest >>= 1) {
          kernels.add_to(size, sum, sum - size);
          sum -= size;
          --depth;
        }
        ++depth;
      }
      if (add) {
        kernels.add_to(size, sums_.data(), out + first * width_);
      } else {
        std::copy_n(sums_.data(), size, out + first * width_);
      }
    }
  }

 private:
  static constexpr int64_t kTokenBlock = 512;

  Range vocabulary_ = {};
  int64_t width_ = 0;
  Buffer<T> sums_;
};

}  // namespace dtrain::engine
