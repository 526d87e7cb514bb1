// Fully connected layers with ReLU between them and softmax cross-entropy at the end: an MLP by itself,
// and the end of a LeNet. Weights lie [in][out].
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "engine/buffer.h"
#include "engine/kernels/kernels.h"
#include "engine/layout.h"

namespace dtrain::engine {

template <class T>
class DenseLayers {
 public:
  // As nn.Linear: uniform in 1/sqrt(in).
  static void add_to(Layout& layout, const std::vector<int64_t>& widths, const std::string& prefix) {
    for (size_t i = 0; i + 1 < widths.size(); ++i) {
      const double bound = 1 / std::sqrt(static_cast<double>(widths[i]));
      const std::string name = prefix + std::to_string(i);
      layout.add({.name = name + ".weight", .shape = {widths[i], widths[i + 1]}, .transposed = true,
                  .initial = Initial::Uniform, .scale = bound});
      layout.add({.name = name + ".bias", .shape = {widths[i + 1]}, .initial = Initial::Uniform,
                  .scale = bound});
    }
  }

  // `first` is the layout's parameter that add_to added first.
  DenseLayers(const Layout& layout, size_t first, std::vector<int64_t> widths, int64_t rows)
      : widths_(std::move(widths)) {
    int64_t widest = 0;
    for (size_t i = 0; i + 1 < widths_.size(); ++i) {
      weights_.push_back(layout.parameters()[first + 2 * i].offset);
      biases_.push_back(layout.parameters()[first + 2 * i + 1].offset);
      outputs_.emplace_back(rows * widths_[i + 1]);
      if (i > 0) widest = std::max(widest, widths_[i]);
    }
    gradients_[0] = Buffer<T>(rows * widest);
    gradients_[1] = Buffer<T>(rows * widest);
    losses_ = Buffer<double>(rows);
  }

  // Leaves the gradients of the losses in place of the logits. Returns how many are right.
  int64_t forward(const T* parameters, const T* x, int64_t rows, const int32_t* labels) {
    for (size_t i = 0; i < outputs_.size(); ++i) {
      T* y = outputs_[i].data();
      k_.gemm(rows, widths_[i + 1], widths_[i], {x, widths_[i], 1},
              {parameters + weights_[i], widths_[i + 1], 1}, y, widths_[i + 1], false);
      const bool is_last = i + 1 == outputs_.size();
      (is_last ? k_.add_bias : k_.add_bias_relu)(rows, widths_[i + 1], parameters + biases_[i], y);
      x = y;
    }
    return k_.softmax_cross_entropy(rows, widths_.back(), labels, outputs_.back().data(), losses_.data());
  }
  const double* losses() const { return losses_.data(); }

  // After forward on the same x. dx: nullptr if nobody wants it.
  void backward(const T* parameters, const T* x, Leaves leaves, T* gradients, bool add, T* dx) {
    const int64_t rows = leaves.ends[leaves.count - 1];
    const T* dy = outputs_.back().data();
    for (size_t i = outputs_.size(); i-- > 0;) {
      const int64_t in = widths_[i], out = widths_[i + 1];
      const T* input = i == 0 ? x : outputs_[i - 1].data();
      k_.gemm_tree(in, out, leaves, {input, 1, in}, {dy, out, 1}, gradients + weights_[i], out, add);
      k_.sum_rows(out, leaves, dy, gradients + biases_[i], add);
      T* to = i == 0 ? dx : gradients_[i % 2].data();
      if (to == nullptr) return;
      k_.gemm(rows, in, out, {dy, out, 1}, {parameters + weights_[i], 1, out}, to, in, false);
      if (i > 0) k_.relu_backward(rows * in, input, to);
      dy = to;
    }
  }

 private:
  const Kernels<T>& k_ = kernels<T>();
  std::vector<int64_t> widths_;
  std::vector<int64_t> weights_, biases_;  // offsets
  std::vector<Buffer<T>> outputs_;         // of each layer, after its ReLU
  Buffer<T> gradients_[2];
  Buffer<double> losses_;
};

}  // namespace dtrain::engine
