// The loss of a batch on the CPU: softmax cross-entropy, of whole rows of logits or of rows of which each
// of several has some columns. These tell each other, of each row, how large the sum of exponentials of
// each part is.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/buffer.h"
#include "engine/kernels/kernels.h"
#include "engine/models/model.h"

namespace dtrain::engine {

// The sum of losses[0, rows) by the tree over the leaves, leaf l being rows_per_sample times its samples.
inline double tree_total(Leaves leaves, int64_t rows_per_sample, const double* losses) {
  std::array<double, kTreeLevels> waiting{};
  size_t depth = 0;
  int64_t row = 0;
  for (int leaf = 0; leaf < leaves.count; ++leaf) {
    double sum = 0;
    for (; row < leaves.ends[leaf] * rows_per_sample; ++row) sum += losses[row];
    for (int rest = leaf; rest & 1; rest >>= 1) sum += waiting[--depth];
    waiting[depth++] = sum;
  }
  return waiting[0];
}

template <class T>
class HostLosses {
 public:
  HostLosses() = default;
  // Of up to `rows` rows; `columns`: the slice's.
  HostLosses(int64_t rows, Range columns, int slices) : columns_(columns), slices_(slices), losses_(rows) {
    if (slices == 1) return;
    mine_ = Buffer<T>(rows * kTold);
    all_ = Buffer<T>(rows * kTold * slices);
    known_.resize(static_cast<size_t>(rows));
  }

  // logits [rows][columns.size()] become the gradients of the losses. `partners`: where there are several
  // slices; all get the same outcome.
  Outcome run(const Kernels<T>& kernels, Leaves leaves, int64_t rows_per_sample, const int32_t* labels,
              T* logits, int64_t width, Partners<T>* partners) {
    INVARIANT(width == columns_.size(), "rows of logits lie one after the other");
    const int64_t rows = leaves.ends[leaves.count - 1] * rows_per_sample;
    const int64_t correct =
        slices_ == 1 ? kernels.softmax_cross_entropy(rows, width, labels, logits, losses_.data())
                     : run_slice(kernels, rows, labels, logits, *partners);
    return {tree_total(leaves, rows_per_sample, losses_.data()), rows, correct};
  }

 private:
  int64_t run_slice(const Kernels<T>& kernels, int64_t rows, const int32_t* labels, T* logits,
                    Partners<T>& partners) {
    const int64_t n = columns_.size();
    if (n > 0) {
      tell(kernels, rows, labels, logits);
    } else {  // there are fewer classes than slices
      std::fill_n(mine_.data(), rows * kTold, -std::numeric_limits<T>::infinity());
    }
    partners.gather(mine_.data(), all_.data(), rows * kTold);

    int64_t correct = 0;
    for (int64_t row = 0; row < rows; ++row) {
      T most = -std::numeric_limits<T>::infinity(), right = most, largest = most;
      for (int slice = 0; slice < slices_; ++slice) {
        const T* told = all_.data() + (slice * rows + row) * kTold;
        most = std::max(most, told[0]);
        largest = std::max(largest, told[1]);
        right = std::max(right, told[2]);
      }
      double sum = 0;
      bool is_taken = false;  // by a slice before
      for (int slice = 0; slice < slices_; ++slice) {
        const T* told = all_.data() + (slice * rows + row) * kTold;
        sum += std::exp(static_cast<double>(told[1] - largest));
        correct += !is_taken && told[0] == most && told[3] > T(0);
        is_taken = is_taken || told[0] == most;
      }
      const double log_sum = std::log(sum) + static_cast<double>(largest);
      losses_[row] = log_sum - static_cast<double>(right);
      const auto share = static_cast<T>(std::exp(static_cast<double>(mine_[row * kTold + 1]) - log_sum));
      T* at = logits + row * n;
      for (int64_t i = 0; i < n; ++i) at[i] *= share;
      const int64_t label = labels[row] - columns_.begin;
      if (label >= 0 && label < n) at[label] -= T(1);
    }
    return correct;
  }

  // Of a slice that has some: of each row what kTold says. Logits become probabilities within the slice.
  void tell(const Kernels<T>& kernels, int64_t rows, const int32_t* labels, T* logits) {
    const int64_t n = columns_.size();
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t label = labels[row] - columns_.begin;
      const bool is_here = label >= 0 && label < n;
      const T* at = logits + row * n;
      known_[static_cast<size_t>(row)] = static_cast<int32_t>(is_here ? label : 0);
      T* told = mine_.data() + row * kTold;
      const T* const largest = std::max_element(at, at + n);
      told[0] = *largest;
      told[1] = at[known_[static_cast<size_t>(row)]];  // until the kernel has been there
      told[2] = is_here ? told[1] : -std::numeric_limits<T>::infinity();
      told[3] = is_here && largest == at + label;
    }
    // As if this were all: probabilities within the slice, and the logarithm of its sum.
    double* losses = losses_.data();
    kernels.softmax_cross_entropy(rows, n, known_.data(), logits, losses);
    for (int64_t row = 0; row < rows; ++row) {
      mine_[row * kTold + 1] += static_cast<T>(losses[row]);
      logits[row * n + known_[static_cast<size_t>(row)]] += T(1);
    }
  }

  // Of each row: the largest logit, the logarithm of the sum of exponentials, the label's logit, and whether that is right
  // among those here: of several that are as large the first is guessed.
  static constexpr int64_t kTold = 4;

  Range columns_ = {};
  int slices_ = 1;
  Buffer<double> losses_;
  Buffer<T> mine_, all_;
  std::vector<int32_t> known_;  // a label within the slice
};

}  // namespace dtrain::engine
