// GPT-2: pre-norm transformer blocks, learned positions, GELU by tanh, the classifier tied to the token
// embedding. Names and shapes are those of GPT-2's published weights, [in][out] for its matrices.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/buffer.h"
#include "engine/models/losses.h"
#include "engine/models/model.h"

namespace dtrain::engine {

inline Layout gpt_layout(const GptSpec& spec, const SampleShape& shape) {
  Layout layout;
  const int64_t c = spec.width;
  const double deviation = 0.02, residual = 0.02 / std::sqrt(2.0 * spec.layers);
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t columns, double scale) {
    layout.add({.name = name, .shape = {rows, columns}, .initial = Initial::Normal, .scale = scale});
  };
  const auto vector = [&](const std::string& name, int64_t n, Initial initial) {
    layout.add({.name = name, .shape = {n}, .decays = false, .initial = initial});
  };
  matrix("wte.weight", shape.vocabulary, c, deviation);
  matrix("wpe.weight", shape.context, c, deviation);
  for (int i = 0; i < spec.layers; ++i) {
    const std::string h = "h." + std::to_string(i) + ".";
    vector(h + "ln_1.weight", c, Initial::One);
    vector(h + "ln_1.bias", c, Initial::Zero);
    matrix(h + "attn.c_attn.weight", c, 3 * c, deviation);
    vector(h + "attn.c_attn.bias", 3 * c, Initial::Zero);
    matrix(h + "attn.c_proj.weight", c, c, residual);
    vector(h + "attn.c_proj.bias", c, Initial::Zero);
    vector(h + "ln_2.weight", c, Initial::One);
    vector(h + "ln_2.bias", c, Initial::Zero);
    matrix(h + "mlp.c_fc.weight", c, 4 * c, deviation);
    vector(h + "mlp.c_fc.bias", 4 * c, Initial::Zero);
    matrix(h + "mlp.c_proj.weight", 4 * c, c, residual);
    vector(h + "mlp.c_proj.bias", c, Initial::Zero);
  }
  vector("ln_f.weight", c, Initial::One);
  vector("ln_f.bias", c, Initial::Zero);
  return layout;
}

template <class T>
class Gpt : public Model<T> {
 public:
  Gpt(const GptSpec& spec, const SampleShape& shape, int64_t samples)
      : context_(shape.context),
        width_(spec.width),
        vocabulary_(shape.vocabulary),
        attention_{shape.context, spec.heads, spec.width} {
    const Layout layout = gpt_layout(spec, shape);
    size_t next = 0;
    const auto offset = [&] { return layout.parameters()[next++].offset; };
    const int64_t rows = samples * context_, c = width_;
    tokens_ = offset();
    positions_ = offset();
    for (int i = 0; i < spec.layers; ++i) {
      Layer& l = layers_.emplace_back();
      for (int64_t* each : {&l.gain1, &l.bias1, &l.qkv_w, &l.qkv_b, &l.out_w, &l.out_b, &l.gain2,
                            &l.bias2, &l.fc_w, &l.fc_b, &l.proj_w, &l.proj_b}) {
        *each = offset();
      }
      for (Buffer<T>* each : {&l.x, &l.norm1, &l.attended, &l.middle, &l.norm2}) *each = Buffer<T>(rows * c);
      for (Buffer<T>* each : {&l.mean1, &l.rstd1, &l.mean2, &l.rstd2}) *each = Buffer<T>(rows);
      l.qkv = Buffer<T>(rows * 3 * c);
      l.log_sums = Buffer<T>(rows * spec.heads);
      l.fc = Buffer<T>(rows * 4 * c);
      l.gelu = Buffer<T>(rows * 4 * c);
    }
    gain_ = offset();
    bias_ = offset();
    for (Buffer<T>* each : {&last_, &norm_, &dx_, &dc_}) *each = Buffer<T>(rows * c);
    for (Buffer<T>* each : {&mean_, &rstd_}) *each = Buffer<T>(rows);
    wide_ = Buffer<T>(rows * 4 * c);
    logits_ = Buffer<T>(rows * vocabulary_);
    losses_ = Buffer<double>(rows);
    token_sums_ = Buffer<T>(kTreeLevels * std::min(vocabulary_, kTokenBlock) * c);
  }

  Outcome train(const T* parameters, const Samples<T>& samples, Leaves leaves, T* gradients,
                bool add) override {
    const int64_t count = leaves.ends[leaves.count - 1];
    const int64_t correct = forward(parameters, samples, count);
    row_ends_.assign(leaves.ends, leaves.ends + leaves.count);
    for (int64_t& end : row_ends_) end *= context_;
    backward(parameters, samples, leaves, {row_ends_.data(), leaves.count}, gradients, add);
    return {tree_total(leaves, context_, losses_.data()), count * context_, correct};
  }

  Outcome evaluate(const T* parameters, const Samples<T>& samples, int64_t count) override {
    const int64_t correct = forward(parameters, samples, count);
    return {tree_total({&count, 1}, context_, losses_.data()), count * context_, correct};
  }

 private:
  struct Layer {
    // Offsets of parameters.
    int64_t gain1, bias1, qkv_w, qkv_b, out_w, out_b, gain2, bias2, fc_w, fc_b, proj_w, proj_b;
    // What backward needs again; `x` goes in, `middle` is after attention.
    Buffer<T> x, norm1, qkv, log_sums, attended, middle, norm2, fc, gelu;
    Buffer<T> mean1, rstd1, mean2, rstd2;
  };

  // y = x W
  void multiply(int64_t rows, int64_t in, int64_t out, const T* x, const T* weights, T* y, bool add) {
    k_.gemm(rows, out, in, {x, in, 1}, {weights, out, 1}, y, out, add);
  }
  // dx = dy W'
  void multiply_back(int64_t rows, int64_t in, int64_t out, const T* dy, const T* weights, T* dx) {
    k_.gemm(rows, in, out, {dy, out, 1}, {weights, 1, out}, dx, in, false);
  }

  int64_t forward(const T* p, const Samples<T>& samples, int64_t count) {
    const int64_t rows = count * context_, c = width_;
    k_.embed(rows, c, context_, samples.ids, p + tokens_, p + positions_, layers_.front().x.data());
    for (size_t i = 0; i < layers_.size(); ++i) {
      Layer& l = layers_[i];
      k_.layer_norm(rows, c, l.x.data(), p + l.gain1, p + l.bias1, l.norm1.data(), l.mean1.data(),
                    l.rstd1.data());
      multiply(rows, c, 3 * c, l.norm1.data(), p + l.qkv_w, l.qkv.data(), false);
      k_.add_bias(rows, 3 * c, p + l.qkv_b, l.qkv.data());
      k_.attention(attention_, count, l.qkv.data(), l.attended.data(), l.log_sums.data());
      std::copy_n(l.x.data(), rows * c, l.middle.data());
      multiply(rows, c, c, l.attended.data(), p + l.out_w, l.middle.data(), true);
      k_.add_bias(rows, c, p + l.out_b, l.middle.data());
      k_.layer_norm(rows, c, l.middle.data(), p + l.gain2, p + l.bias2, l.norm2.data(),
                    l.mean2.data(), l.rstd2.data());
      multiply(rows, c, 4 * c, l.norm2.data(), p + l.fc_w, l.fc.data(), false);
      k_.add_bias_gelu(rows, 4 * c, p + l.fc_b, l.fc.data(), l.gelu.data());
      T* next = (i + 1 < layers_.size() ? layers_[i + 1].x : last_).data();
      std::copy_n(l.middle.data(), rows * c, next);
      multiply(rows, 4 * c, c, l.gelu.data(), p + l.proj_w, next, true);
      k_.add_bias(rows, c, p + l.proj_b, next);
    }
    k_.layer_norm(rows, c, last_.data(), p + gain_, p + bias_, norm_.data(), mean_.data(), rstd_.data());
    k_.gemm(rows, vocabulary_, c, {norm_.data(), c, 1}, {p + tokens_, 1, c}, logits_.data(),
            vocabulary_, false);
    return k_.softmax_cross_entropy(rows, vocabulary_, samples.labels, logits_.data(), losses_.data());
  }

  void backward(const T* p, const Samples<T>& samples, Leaves leaves, Leaves rows_of, T* g, bool add) {
    const int64_t rows = rows_of.ends[rows_of.count - 1], c = width_;
    T *dx = dx_.data(), *dc = dc_.data(), *wide = wide_.data();
    k_.gemm(rows, c, vocabulary_, {logits_.data(), vocabulary_, 1}, {p + tokens_, c, 1}, dc, c, false);
    std::fill_n(dx, rows * c, T(0));
    k_.layer_norm_backward(c, rows_of, last_.data(), p + gain_, mean_.data(), rstd_.data(), dc, dx,
                           g + gain_, g + bias_, add);
    for (size_t i = layers_.size(); i-- > 0;) {
      const Layer& l = layers_[i];
      linear_gradient(4 * c, c, rows_of, l.gelu.data(), dx, g + l.proj_w, g + l.proj_b, add);
      multiply_back(rows, 4 * c, c, dx, p + l.proj_w, wide);
      k_.gelu_backward(rows * 4 * c, l.fc.data(), wide);
      linear_gradient(c, 4 * c, rows_of, l.norm2.data(), wide, g + l.fc_w, g + l.fc_b, add);
      multiply_back(rows, c, 4 * c, wide, p + l.fc_w, dc);
      k_.layer_norm_backward(c, rows_of, l.middle.data(), p + l.gain2, l.mean2.data(),
                             l.rstd2.data(), dc, dx, g + l.gain2, g + l.bias2, add);
      linear_gradient(c, c, rows_of, l.attended.data(), dx, g + l.out_w, g + l.out_b, add);
      multiply_back(rows, c, c, dx, p + l.out_w, dc);
      k_.attention_backward(attention_, leaves.ends[leaves.count - 1], l.qkv.data(),
                            l.log_sums.data(), dc, wide);
      linear_gradient(c, 3 * c, rows_of, l.norm1.data(), wide, g + l.qkv_w, g + l.qkv_b, add);
      multiply_back(rows, c, 3 * c, wide, p + l.qkv_w, dc);
      k_.layer_norm_backward(c, rows_of, l.x.data(), p + l.gain1, l.mean1.data(), l.rstd1.data(), dc,
                             dx, g + l.gain1, g + l.bias1, add);
    }
    k_.position_gradient(c, context_, leaves, dx, g + positions_, add);
    token_gradient(samples.ids, rows_of, dx, g + tokens_, add);
  }

  void linear_gradient(int64_t in, int64_t out, Leaves rows, const T* x, const T* dy, T* dw, T* db,
                       bool add) {
    k_.gemm_tree(in, out, rows, {x, 1, in}, {dy, out, 1}, dw, out, add);
    k_.sum_rows(out, rows, dy, db, add);
  }

  // What the classifier gives and what the embedding gives are one sum in each leaf: the tree must not
  // be asked twice. Some tokens at a time, so that the sums that wait stay small.
  void token_gradient(const int32_t* ids, Leaves rows, const T* dx, T* out, bool add) {
    const int64_t c = width_;
    for (int64_t first = 0; first < vocabulary_; first += kTokenBlock) {
      const int64_t tokens = std::min(kTokenBlock, vocabulary_ - first);
      const int64_t size = tokens * c;
      int depth = 0;
      int64_t begin = 0;
      for (int leaf = 0; leaf < rows.count; ++leaf) {
        const int64_t end = rows.ends[leaf];
        T* sum = token_sums_.data() + depth * size;
        k_.gemm(tokens, c, end - begin, {logits_.data() + begin * vocabulary_ + first, 1, vocabulary_},
                {norm_.data() + begin * c, c, 1}, sum, c, false);
        for (int64_t row = begin; row < end; ++row) {
          const int64_t token = ids[row] - first;
          if (token >= 0 && token < tokens) k_.add_to(c, dx + row * c, sum + token * c);
        }
        begin = end;
        for (int rest = leaf; rest & 1; rest >>= 1) {
          k_.add_to(size, sum, sum - size);
          sum -= size;
          --depth;
        }
        ++depth;
      }
      if (add) {
        k_.add_to(size, token_sums_.data(), out + first * c);
      } else {
        std::copy_n(token_sums_.data(), size, out + first * c);
      }
    }
  }

  static constexpr int64_t kTokenBlock = 512;

  const Kernels<T>& k_ = kernels<T>();
  int64_t context_, width_, vocabulary_;
  AttentionShape attention_;
  int64_t tokens_, positions_, gain_, bias_;  // offsets
  std::vector<Layer> layers_;
  Buffer<T> last_, norm_, mean_, rstd_, logits_;
  Buffer<T> dx_;    // of the residual stream
  Buffer<T> dc_;    // of something `width` wide
  Buffer<T> wide_;  // of something up to 4 width wide
  Buffer<double> losses_;
  Buffer<T> token_sums_;
  std::vector<int64_t> row_ends_;
};

}  // namespace dtrain::engine
