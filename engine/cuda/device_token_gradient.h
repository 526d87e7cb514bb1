// The gradient of token embeddings that are the classifier too, on a GPU. Rows of a batch are sorted by
// their token, so that each token's are summed in a fixed order.
#pragma once

#include "engine/cuda/context.h"
#include "engine/cuda/kernels.h"
#include "engine/layout.h"

namespace dtrain::engine::cuda {

template <class V>
class DeviceTokenGradient {
  using Sum = cuda::Sum<V>;

 public:
  DeviceTokenGradient() = default;
  DeviceTokenGradient(Range vocabulary, int64_t tokens, int64_t width, int64_t rows)
      : vocabulary_(vocabulary),
        tokens_(tokens),
        width_(width),
        order_(rows),
        begin_(tokens + 1),
        work_(token_order_workspace(rows, tokens)) {}

  template <class Ops>
  void run(const Ops& ops, const int32_t* ids, Leaves rows_of, const V* dlogits, int64_t logits_width, const V* x,
           const V* dx, Sum* out, bool add) {
    const int64_t n = vocabulary_.size();
    if (dlogits != nullptr) {
      ops.gemm_tree(n, width_, rows_of, {dlogits, 1, logits_width}, {x, width_, 1}, out, width_, add);
    } else if (!add) {
      ops.clear(n * width_, out);
    }
    if (dx == nullptr) return;
    order_by_token(ops.stream(), rows_of.ends[rows_of.count - 1], tokens_, ids, order_.data(), begin_.data(),
                   work_.data());
    token_gradient(ops.stream(), width_, vocabulary_.begin, n, order_.data(), begin_.data(), dx, out);
  }

 private:
  Range vocabulary_ = {};
  int64_t tokens_ = 0, width_ = 0;
  DeviceMemory<int32_t> order_, begin_, work_;
};

}  // namespace dtrain::engine::cuda
