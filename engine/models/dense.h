// Fully connected layers with ReLU between them and softmax cross-entropy at the end: an MLP by itself,
// and the end of a LeNet. Weights lie [in][out].
//
// In slices, one layer is cut by its columns, which leaves each with some of its outputs, and the next
// by its rows, which takes them as they are and adds up what comes out: one sum for two layers, each
// way. A last layer without a partner is whole everywhere.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "engine/kernels/kernels.h"
#include "engine/kernels/trial.h"
#include "engine/layout.h"
#include "engine/models/model.h"

namespace dtrain::engine {

// Which of a model's fully connected layers, and of what widths they all are.
struct DensePlan {
  std::vector<int64_t> widths;  // of the input and of every layer
  size_t first = 0;             // the layout's parameter that add_dense added first
  Range layers = {};
  ModelPart part = {};

  int64_t count() const { return static_cast<int64_t>(widths.size()) - 1; }
  bool ends_model() const { return layers.end == count(); }
  bool by_columns(int64_t layer) const { return part.slices > 1 && layer % 2 == 0 && layer + 1 < count(); }
  bool by_rows(int64_t layer) const { return part.slices > 1 && layer % 2 == 1; }
};

// As nn.Linear: uniform in 1/sqrt(in).
inline void add_dense(Layout& layout, const std::vector<int64_t>& widths, const std::string& prefix) {
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    const double bound = 1 / std::sqrt(static_cast<double>(widths[i]));
    const std::string name = prefix + std::to_string(i);
    layout.add({.name = name + ".weight", .shape = {widths[i], widths[i + 1]}, .transposed = true,
                .initial = Initial::Uniform, .scale = bound});
    layout.add({.name = name + ".bias", .shape = {widths[i + 1]}, .initial = Initial::Uniform,
                .scale = bound});
  }
}

inline void hold_dense(Pieces& pieces, const DensePlan& plan) {
  for (int64_t i = plan.layers.begin; i < plan.layers.end; ++i) {
    const size_t weight = plan.first + 2 * static_cast<size_t>(i), bias = weight + 1;
    const int64_t in = plan.widths[static_cast<size_t>(i)], out = plan.widths[static_cast<size_t>(i) + 1];
    const Piece::Whose whole = plan.part.slices == 1 ? Piece::Own : Piece::Same;
    if (plan.by_columns(i)) {
      pieces.columns(weight, plan.part.sliced(out));
      pieces.columns(bias, plan.part.sliced(out));
    } else if (plan.by_rows(i)) {
      pieces.rows(weight, plan.part.sliced(in));
      pieces.whole(bias, Piece::Same);
    } else {
      pieces.whole(weight, whole);
      pieces.whole(bias, whole);
    }
  }
}

template <class Ops>
class DenseLayers {
 public:
  using T = typename Ops::Value;
  using Sum = typename Ops::Sum;

  static Common<T> after_relu() { return {T{}, 0.5f}; }

  DenseLayers(const Ops& ops, const std::vector<View>& views, const DensePlan& plan, int64_t rows,
              Partners<T, Sum>* partners)
      : ops_(ops), partners_(partners), ends_model_(plan.ends_model()) {
    int64_t widest = 0;
    for (int64_t i = plan.layers.begin; i < plan.layers.end; ++i) {
      const size_t at = plan.first + 2 * static_cast<size_t>(i);
      const int64_t in = plan.widths[static_cast<size_t>(i)], out = plan.widths[static_cast<size_t>(i) + 1];
      Layer& l = layers_.emplace_back();
      l.in = in;
      l.out = out;
      l.weight = views[at];
      l.bias = views[at + 1].offset;
      if (plan.by_columns(i)) {
        l.sums_dx = true;
        l.out = plan.part.sliced(out).size();
      } else if (plan.by_rows(i)) {
        l.sums_y = true;
        l.in = plan.part.sliced(in).size();
      }
      l.y = Memory(rows * l.out);
      if (i > plan.layers.begin) widest = std::max(widest, l.in);
    }
    gradients_[0] = Memory(rows * widest);
    gradients_[1] = Memory(rows * widest);
    if (ends_model_) {
      losses_ = Losses(rows, {0, plan.widths.back()}, 1);
    } else if (!layers_.empty()) {
      dout_ = Memory(rows * layers_.back().out);
    }
  }

  bool empty() const { return layers_.empty(); }

  // `common`: of x. Leaves the gradients of the losses in place of the logits.
  Outcome forward(const T* parameters, const T* x, Common<T> common, Leaves leaves, const int32_t* labels,
                  const LayerDone& done) {
    const int64_t rows = leaves.ends[leaves.count - 1];
    for (size_t i = 0; i < layers_.size(); ++i) {
      Layer& l = layers_[i];
      T* y = l.y.data();
      const GemmA<T> a{x, l.in, 1, i > 0 ? after_relu() : common, &l.trials.forward};
      const GemmB<T> b{parameters + l.weight.offset, l.weight.stride, 1};
      const T* bias = parameters + l.bias;
      const bool is_loss = ends_model_ && i + 1 == layers_.size();
      if (l.sums_y) {
        ops_.gemm(rows, l.out, l.in, a, b, y, l.out, false);
        partners_->add_up(y, rows * l.out);
        is_loss ? ops_.add_bias(rows, l.out, bias, y) : ops_.add_bias_relu(rows, l.out, bias, y);
      } else if (is_loss) {
        ops_.gemm_bias(rows, l.out, l.in, a, b, bias, y);
      } else {
        ops_.gemm_bias_relu(rows, l.out, l.in, a, b, bias, y);
      }
      x = y;
      if (done) done();
    }
    if (!ends_model_) return {};
    Layer& last = layers_.back();
    return losses_.run(ops_, leaves, 1, labels, last.y.data(), last.out, partners_);
  }
  const T* output() const { return layers_.back().y.data(); }
  T* output_gradient() { return dout_.data(); }

  // After forward on the same x. dx: nullptr if nobody wants it.
  void backward(const T* parameters, const T* x, Common<T> common, Leaves leaves, Sum* gradients, bool add, T* dx,
                const GradientsReady& ready) {
    if (layers_.empty()) return;
    const int64_t rows = leaves.ends[leaves.count - 1];
    Layer& last = layers_.back();
    if (!ends_model_) ops_.relu_backward(rows * last.out, last.y.data(), dout_.data());
    const T* dy = (ends_model_ ? last.y : dout_).data();
    for (size_t i = layers_.size(); i-- > 0;) {
      Layer& l = layers_[i];
      const T* input = i == 0 ? x : layers_[i - 1].y.data();
      // Before its own gradients, which may become new weights at once.
      T* const to = i == 0 ? dx : gradients_[i % 2].data();
      if (to != nullptr) backward_to(to, i, rows, parameters, dy, input);
      const GemmA<T> a{input, 1, l.in, i > 0 ? after_relu() : common, &l.trials.weights};
      ops_.gemm_tree(l.in, l.out, leaves, a, {dy, l.out, 1, common_behind(i).share}, gradients + l.weight.offset, l.weight.stride, add);
      ops_.sum_rows(l.out, leaves, dy, gradients + l.bias, add);
      if (ready) ready(l.weight.offset);
      dy = to;
    }
  }

 private:
  // What comes back to layer i has come through a ReLU, but at the end of the model.
  Common<T> common_behind(size_t i) const { return !ends_model_ || i + 1 < layers_.size() ? after_relu() : Common<T>{}; }
  // The gradient of layer i's input.
  void backward_to(T* to, size_t i, int64_t rows, const T* parameters, const T* dy, const T* input) {
    Layer& l = layers_[i];
    const GemmA<T> a{dy, l.out, 1, common_behind(i), &l.trials.samples};
    const GemmB<T> b{parameters + l.weight.offset, 1, l.weight.stride};
    if (i > 0 && !l.sums_dx) return ops_.gemm_relu_backward(rows, l.in, l.out, a, b, input, to);
    ops_.gemm(rows, l.in, l.out, a, b, to, l.in, false);
    if (l.sums_dx) partners_->add_up(to, rows * l.in);
    if (i > 0) ops_.relu_backward(rows * l.in, input, to);
  }

  using Memory = typename Ops::template Memory<T>;
  using Losses = typename Ops::Losses;

  struct Layer {
    int64_t in = 0, out = 0;  // of this slice
    View weight = {};
    int64_t bias = 0;  // offset
    bool sums_y = false, sums_dx = false;
    Memory y = {};  // after the ReLU
    struct {
      Trial forward, samples, weights;   // of its products
    } trials = {};
  };

  Ops ops_;
  Partners<T, Sum>* partners_;
  const bool ends_model_;
  std::vector<Layer> layers_;
  Memory gradients_[2];
  Memory dout_;
  Losses losses_;
};

}  // namespace dtrain::engine
