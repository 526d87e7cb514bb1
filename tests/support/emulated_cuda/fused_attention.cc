// FusedAttention on the emulated device: plain loops, for what cuDNN takes: heads of a multiple of 8.
#include "engine/cuda/fused_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "cuda_runtime.h"
#include "emulator.h"

namespace dtrain::engine::cuda {

namespace {

// One head of one sample.
struct Head {
  int64_t context, width, beside, across;  // of a head; of a row of qkv, and of out
  const Bfloat16 *q, *k, *v;

  float score(int64_t row, int64_t key) const {
    float sum = 0;
    for (int64_t i = 0; i < width; ++i) {
      sum += static_cast<float>(q[row * beside + i]) * static_cast<float>(k[key * beside + i]);
    }
    return sum / std::sqrt(static_cast<float>(width));
  }
};

template <class Body>
void for_heads(const AttentionShape& shape, int64_t samples, const Bfloat16* qkv, Body body) {
  for (int64_t at = 0; at < samples * shape.heads; ++at) {
    const int64_t sample = at / shape.heads, width = shape.width / shape.heads, first = at % shape.heads * width;
    const Bfloat16* rows = qkv + sample * shape.context * 3 * shape.width + first;
    body(Head{shape.context, width, 3 * shape.width, shape.width, rows, rows + shape.width, rows + 2 * shape.width}, at,
         sample * shape.context * shape.width + first);
  }
}

class EmulatedAttention : public FusedAttention {
 public:
  explicit EmulatedAttention(Device& device) : device_(device) {}

  // Of each shape the first time waits, as plans of cuDNN may.
  const Status& takes(const AttentionShape& shape, int64_t samples) override {
    const std::array<int64_t, 4> key{shape.context, shape.heads, shape.width, samples};
    if (const auto found = taken_.find(key); found != taken_.end()) return found->second;
    if (status_.ok()) status_ = device_.settle();
    if (!status_.ok()) return status_;
    emulated::count_plan();
    Status taken = ok();
    if (shape.context <= 1 || shape.width / shape.heads % 8 != 0) {
      taken = Error{Code::FailedPrecondition, "heads are no multiple of 8 wide", ""};
    } else if (cudaStreamSynchronize(device_.stream()) != cudaSuccess) {
      cudaGetLastError();
      taken = Error{Code::FailedPrecondition, "no plan for attention", ""};
    }
    return taken_.emplace(key, std::move(taken)).first->second;
  }
  int64_t workspace(const AttentionShape&, int64_t) override { return 0; }

  void forward(cudaStream_t stream, const AttentionShape& shape, int64_t samples, const Bfloat16* qkv, Bfloat16* out,
               float* log_sums, void*) override {
    if (!counts(samples)) return;
    emulated::enqueue(stream, [=] {
      for_heads(shape, samples, qkv, [&](const Head& head, int64_t at, int64_t offset) {
        std::vector<float> weights(static_cast<size_t>(head.context));
        for (int64_t row = 0; row < head.context; ++row) {
          float most = -std::numeric_limits<float>::infinity(), sum = 0;
          for (int64_t key = 0; key <= row; ++key) most = std::max(most, head.score(row, key));
          for (int64_t key = 0; key <= row; ++key) {
            sum += weights[static_cast<size_t>(key)] = std::exp(head.score(row, key) - most);
          }
          log_sums[at * head.context + row] = most + std::log(sum);
          for (int64_t i = 0; i < head.width; ++i) {
            float value = 0;
            for (int64_t key = 0; key <= row; ++key) {
              value += weights[static_cast<size_t>(key)] * static_cast<float>(head.v[key * head.beside + i]);
            }
            out[offset + row * head.across + i] = static_cast<Bfloat16>(value / sum);
          }
        }
      });
      return true;
    });
  }

  void backward(cudaStream_t stream, const AttentionShape& shape, int64_t samples, const Bfloat16* qkv,
                const Bfloat16* out, const float* log_sums, const Bfloat16* dout, Bfloat16* dqkv, void*) override {
    if (!counts(samples)) return;
    emulated::enqueue(stream, [=] {
      for_heads(shape, samples, qkv, [&](const Head& head, int64_t at, int64_t offset) {
        const auto size = static_cast<size_t>(head.context * head.width);
        std::vector<float> dq(size), dk(size), dv(size);
        const float scale = 1 / std::sqrt(static_cast<float>(head.width));
        for (int64_t row = 0; row < head.context; ++row) {
          const Bfloat16 *const o = out + offset + row * head.across, *const d = dout + offset + row * head.across;
          float delta = 0;
          for (int64_t i = 0; i < head.width; ++i) delta += static_cast<float>(o[i]) * static_cast<float>(d[i]);
          for (int64_t key = 0; key <= row; ++key) {
            const float weight = std::exp(head.score(row, key) - log_sums[at * head.context + row]);
            float dweight = 0;
            for (int64_t i = 0; i < head.width; ++i) {
              dweight += static_cast<float>(d[i]) * static_cast<float>(head.v[key * head.beside + i]);
              dv[static_cast<size_t>(key * head.width + i)] += weight * static_cast<float>(d[i]);
            }
            const float dscore = weight * (dweight - delta) * scale;
            for (int64_t i = 0; i < head.width; ++i) {
              dq[static_cast<size_t>(row * head.width + i)] += dscore * static_cast<float>(head.k[key * head.beside + i]);
              dk[static_cast<size_t>(key * head.width + i)] += dscore * static_cast<float>(head.q[row * head.beside + i]);
            }
          }
        }
        for (int64_t row = 0; row < head.context; ++row) {
          for (int64_t i = 0; i < head.width; ++i) {
            const int64_t to = (head.q - qkv) + row * head.beside + i;
            const auto from = static_cast<size_t>(row * head.width + i);
            dqkv[to] = static_cast<Bfloat16>(dq[from]);
            dqkv[to + head.across] = static_cast<Bfloat16>(dk[from]);
            dqkv[to + 2 * head.across] = static_cast<Bfloat16>(dv[from]);
          }
        }
      });
      return true;
    });
  }
  const Status& status() const override { return status_; }

 private:
  // As cuDNN, which makes a plan of any number.
  bool counts(int64_t samples) {
    if (samples > 65'535 && status_.ok()) status_ = Error{Code::FailedPrecondition, "attention: so many samples don't go", ""};
    return status_.ok();
  }

  Device& device_;
  std::map<std::array<int64_t, 4>, Status> taken_;
  Status status_ = ok();
};

}  // namespace

Result<std::unique_ptr<FusedAttention>> FusedAttention::open(Device& device) {
  return std::unique_ptr<FusedAttention>(std::make_unique<EmulatedAttention>(device));
}

}  // namespace dtrain::engine::cuda
