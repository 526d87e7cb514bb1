// GPT-2: pre-norm transformer blocks, learned positions, GELU by tanh, the classifier tied to the token
// embedding. Names and shapes are those of GPT-2's published weights, [in][out] for its matrices.
//
// In slices (Shoeybi et al., arXiv 1909.08053) each has some of the heads, of the hidden units and of the
// vocabulary: two sums forward and two backward for each block, one for the embedding, one for the
// classifier, and the parts of a softmax.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "engine/buffer.h"
#include "engine/models/losses.h"
#include "engine/models/model.h"
#include "engine/models/sliced_loss.h"

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

inline Held gpt_held(const GptSpec& spec, const SampleShape& shape, const ModelPart& part) {
  const Layout layout = gpt_layout(spec, shape);
  Held held;
  size_t next = 0;
  const auto take = [&]() -> const Parameter& { return layout.parameters()[next++]; };
  const auto whole = [&](const Parameter& p) {
    Held::add(part.slices == 1 ? held.own : held.same, p.range());
  };
  const auto columns = [&](const Parameter& p) { add_columns(held.own, p, part.sliced(p.shape.back())); };
  const auto rows = [&](const Parameter& p) { add_rows(held.own, p, part.sliced(p.shape.front())); };
  // Of query, key and value each.
  const auto heads = [&](const Parameter& p) {
    const Range of_one = part.sliced(spec.width);
    for (int64_t row = p.offset; row < p.range().end; row += 3 * spec.width) {
      for (int64_t at = row; at < row + 3 * spec.width; at += spec.width) {
        Held::add(held.own, {at + of_one.begin, at + of_one.end});
      }
    }
  };
  const Parameter &tokens = take(), &positions = take();
  if (part.stages == 1) {
    rows(tokens);
  } else if (part.is_first() || part.is_last()) {
    Held::add(held.partial, tokens.range());
  }
  if (part.is_first()) whole(positions);
  const Range layers = part.layers(spec.layers);
  for (int64_t i = 0; i < spec.layers; ++i) {
    if (i < layers.begin || i >= layers.end) {
      next += 12;
      continue;
    }
    whole(take()), whole(take());    // ln_1
    heads(take()), heads(take());    // c_attn
    rows(take()), whole(take());     // c_proj
    whole(take()), whole(take());    // ln_2
    columns(take()), columns(take());  // c_fc
    rows(take()), whole(take());     // c_proj
  }
  if (part.is_last()) whole(take()), whole(take());  // ln_f
  return held;
}

template <class T>
class Gpt : public Model<T> {
 public:
  Gpt(const GptSpec& spec, const SampleShape& shape, int64_t samples, const ModelPart& part,
      Partners<T>* partners)
      : part_(part),
        partners_(partners),
        context_(shape.context),
        width_(spec.width),
        heads_(part.sliced(spec.width)),
        hidden_(part.sliced(4 * spec.width)),
        vocabulary_(part.sliced(shape.vocabulary)),
        attention_{shape.context, part.sliced(spec.heads).size(), heads_.size()} {
    const Layout layout = gpt_layout(spec, shape);
    size_t next = 0;
    const auto offset = [&] { return layout.parameters()[next++].offset; };
    const int64_t rows = samples * context_, c = width_;
    tokens_ = offset() + vocabulary_.begin * c;
    positions_ = offset();
    const Range layers = part.layers(spec.layers);
    next += 12 * static_cast<size_t>(layers.begin);
    for (int64_t i = layers.begin; i < layers.end; ++i) {
      Layer& l = layers_.emplace_back();
      for (int64_t* each : {&l.gain1, &l.bias1, &l.qkv_w, &l.qkv_b, &l.out_w, &l.out_b, &l.gain2,
                            &l.bias2, &l.fc_w, &l.fc_b, &l.proj_w, &l.proj_b}) {
        *each = offset();
      }
      l.qkv_w += heads_.begin;
      l.qkv_b += heads_.begin;
      l.out_w += heads_.begin * c;
      l.fc_w += hidden_.begin;
      l.fc_b += hidden_.begin;
      l.proj_w += hidden_.begin * c;
      for (Buffer<T>* each : {&l.x, &l.norm1, &l.middle, &l.norm2}) *each = Buffer<T>(rows * c);
      for (Buffer<T>* each : {&l.mean1, &l.rstd1, &l.mean2, &l.rstd2}) *each = Buffer<T>(rows);
      l.qkv = Buffer<T>(rows * 3 * heads_.size());
      l.attended = Buffer<T>(rows * heads_.size());
      l.log_sums = Buffer<T>(rows * attention_.heads);
      l.fc = Buffer<T>(rows * hidden_.size());
      l.gelu = Buffer<T>(rows * hidden_.size());
    }
    next += 12 * static_cast<size_t>(spec.layers - layers.end);
    gain_ = offset();
    bias_ = offset();
    for (Buffer<T>* each : {&last_, &dx_, &dc_}) *each = Buffer<T>(rows * c);
    wide_ = Buffer<T>(rows * std::max(3 * heads_.size(), hidden_.size()));
    qkv_bias_ = Buffer<T>(3 * heads_.size());
    if (part.is_first() || part.is_last()) {
      token_sums_ = Buffer<T>(kTreeLevels * std::min(vocabulary_.size(), kTokenBlock) * c);
    }
    if (!part.is_last()) return;
    norm_ = Buffer<T>(rows * c);
    for (Buffer<T>* each : {&mean_, &rstd_}) *each = Buffer<T>(rows);
    logits_ = Buffer<T>(rows * vocabulary_.size());
    losses_ = Buffer<double>(rows);
    if (part.slices > 1) sliced_loss_ = SlicedLoss<T>(rows, vocabulary_, part.slices);
  }

  Outcome forward(const T* p, const Samples<T>& samples, Leaves leaves) override {
    const int64_t count = leaves.ends[leaves.count - 1], rows = count * context_, c = width_;
    if (part_.is_first()) embed(p, samples.ids, rows);
    for (size_t i = 0; i < layers_.size(); ++i) {
      Layer& l = layers_[i];
      k_.layer_norm(rows, c, l.x.data(), p + l.gain1, p + l.bias1, l.norm1.data(), l.mean1.data(),
                    l.rstd1.data());
      project_heads(p, l, rows);
      k_.attention(attention_, count, l.qkv.data(), l.attended.data(), l.log_sums.data());
      add_branch(rows, heads_.size(), l.x.data(), l.attended.data(), p + l.out_w, p + l.out_b,
                 l.middle.data());
      k_.layer_norm(rows, c, l.middle.data(), p + l.gain2, p + l.bias2, l.norm2.data(),
                    l.mean2.data(), l.rstd2.data());
      k_.gemm(rows, hidden_.size(), c, {l.norm2.data(), c, 1}, {p + l.fc_w, 4 * c, 1}, l.fc.data(),
              hidden_.size(), false);
      k_.add_bias_gelu(rows, hidden_.size(), p + l.fc_b, l.fc.data(), l.gelu.data());
      T* next = (i + 1 < layers_.size() ? layers_[i + 1].x : last_).data();
      add_branch(rows, hidden_.size(), l.middle.data(), l.gelu.data(), p + l.proj_w, p + l.proj_b, next);
    }
    if (!part_.is_last()) return {};
    const int64_t correct = classify(p, samples.labels, rows);
    return {tree_total(leaves, context_, losses_.data()), rows, correct};
  }

  void backward(const T* p, const Samples<T>& samples, Leaves leaves, T* g, bool add) override {
    row_ends_.assign(leaves.ends, leaves.ends + leaves.count);
    for (int64_t& end : row_ends_) end *= context_;
    const Leaves rows_of{row_ends_.data(), leaves.count};
    const int64_t rows = row_ends_.back(), c = width_;
    T *dx = dx_.data(), *dc = dc_.data(), *wide = wide_.data();
    if (part_.is_last()) {
      k_.gemm(rows, c, vocabulary_.size(), {logits_.data(), vocabulary_.size(), 1}, {p + tokens_, c, 1},
              dc, c, false);
      add_up(dc, rows * c);
      std::fill_n(dx, rows * c, T(0));
      k_.layer_norm_backward(c, rows_of, last_.data(), p + gain_, mean_.data(), rstd_.data(), dc, dx,
                             g + gain_, g + bias_, add);
    }
    for (size_t i = layers_.size(); i-- > 0;) {
      const Layer& l = layers_[i];
      weight_gradient(hidden_.size(), c, rows_of, l.gelu.data(), dx, g + l.proj_w, c, add);
      k_.sum_rows(c, rows_of, dx, g + l.proj_b, add);
      k_.gemm(rows, hidden_.size(), c, {dx, c, 1}, {p + l.proj_w, 1, c}, wide, hidden_.size(), false);
      k_.gelu_backward(rows * hidden_.size(), l.fc.data(), wide);
      weight_gradient(c, hidden_.size(), rows_of, l.norm2.data(), wide, g + l.fc_w, 4 * c, add);
      k_.sum_rows(hidden_.size(), rows_of, wide, g + l.fc_b, add);
      k_.gemm(rows, c, hidden_.size(), {wide, hidden_.size(), 1}, {p + l.fc_w, 1, 4 * c}, dc, c, false);
      add_up(dc, rows * c);
      k_.layer_norm_backward(c, rows_of, l.middle.data(), p + l.gain2, l.mean2.data(),
                             l.rstd2.data(), dc, dx, g + l.gain2, g + l.bias2, add);
      weight_gradient(heads_.size(), c, rows_of, l.attended.data(), dx, g + l.out_w, c, add);
      k_.sum_rows(c, rows_of, dx, g + l.out_b, add);
      k_.gemm(rows, heads_.size(), c, {dx, c, 1}, {p + l.out_w, 1, c}, dc, heads_.size(), false);
      k_.attention_backward(attention_, leaves.ends[leaves.count - 1], l.qkv.data(),
                            l.log_sums.data(), dc, wide);
      project_heads_back(p, l, rows_of, wide, dc, g, add);
      k_.layer_norm_backward(c, rows_of, l.x.data(), p + l.gain1, l.mean1.data(), l.rstd1.data(), dc,
                             dx, g + l.gain1, g + l.bias1, add);
    }
    if (part_.is_first()) k_.position_gradient(c, context_, leaves, dx, g + positions_, add);
    if (part_.is_first() || part_.is_last()) token_gradient(samples.ids, rows_of, dx, g + tokens_, add);
  }

  int64_t flow_in(Leaves leaves) const override { return part_.is_first() ? 0 : flow(leaves); }
  int64_t flow_out(Leaves leaves) const override { return part_.is_last() ? 0 : flow(leaves); }
  T* input() override { return layers_.front().x.data(); }
  const T* input_gradient() const override { return dx_.data(); }
  const T* output() const override { return last_.data(); }
  T* output_gradient() override { return dx_.data(); }

 private:
  struct Layer {
    // Offsets of parameters, of this slice.
    int64_t gain1, bias1, qkv_w, qkv_b, out_w, out_b, gain2, bias2, fc_w, fc_b, proj_w, proj_b;
    // What backward needs again; `x` goes in, `middle` is after attention.
    Buffer<T> x, norm1, qkv, log_sums, attended, middle, norm2, fc, gelu;
    Buffer<T> mean1, rstd1, mean2, rstd2;
  };

  int64_t flow(Leaves leaves) const { return leaves.ends[leaves.count - 1] * context_ * width_; }
  void add_up(T* values, int64_t count) {
    if (part_.slices > 1) partners_->add_up(values, count);
  }

  void embed(const T* p, const int32_t* ids, int64_t rows) {
    T* x = layers_.front().x.data();
    if (part_.slices == 1) {
      k_.embed(rows, width_, context_, ids, p + tokens_, p + positions_, x);
      return;
    }
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t token = ids[row] - vocabulary_.begin;
      const bool is_here = token >= 0 && token < vocabulary_.size();
      if (is_here) std::copy_n(p + tokens_ + token * width_, width_, x + row * width_);
      if (!is_here) std::fill_n(x + row * width_, width_, T(0));
    }
    add_up(x, rows * width_);
    for (int64_t row = 0; row < rows; ++row) {
      k_.add_to(width_, p + positions_ + row % context_ * width_, x + row * width_);
    }
  }

  // Of this slice's heads query, key and value, which lie side by side in what all heads have.
  void project_heads(const T* p, Layer& l, int64_t rows) {
    const int64_t c = width_, mine = heads_.size();
    const int64_t pieces = mine == c ? 1 : 3, columns = 3 * mine / pieces;
    for (int64_t i = 0; i < pieces; ++i) {
      k_.gemm(rows, columns, c, {l.norm1.data(), c, 1}, {p + l.qkv_w + i * c, 3 * c, 1},
              l.qkv.data() + i * columns, 3 * mine, false);
      std::copy_n(p + l.qkv_b + i * c, columns, qkv_bias_.data() + i * columns);
    }
    k_.add_bias(rows, 3 * mine, qkv_bias_.data(), l.qkv.data());
  }

  void project_heads_back(const T* p, const Layer& l, Leaves rows_of, const T* dqkv, T* dx, T* g, bool add) {
    const int64_t c = width_, mine = heads_.size(), rows = rows_of.ends[rows_of.count - 1];
    const int64_t pieces = mine == c ? 1 : 3, columns = 3 * mine / pieces;
    k_.sum_rows(3 * mine, rows_of, dqkv, qkv_bias_.data(), false);
    for (int64_t i = 0; i < pieces; ++i) {
      const T* dy = dqkv + i * columns;
      k_.gemm_tree(c, columns, rows_of, {l.norm1.data(), 1, c}, {dy, 3 * mine, 1}, g + l.qkv_w + i * c,
                   3 * c, add);
      T* db = g + l.qkv_b + i * c;
      if (add) k_.add_to(columns, qkv_bias_.data() + i * columns, db);
      if (!add) std::copy_n(qkv_bias_.data() + i * columns, columns, db);
      k_.gemm(rows, c, columns, {dy, 3 * mine, 1}, {p + l.qkv_w + i * c, 1, 3 * c}, dx, c, i > 0);
    }
    add_up(dx, rows * c);
  }

  // out = x + y W + bias, y being a slice's.
  void add_branch(int64_t rows, int64_t in, const T* x, const T* y, const T* weights, const T* bias, T* out) {
    const int64_t c = width_;
    if (part_.slices == 1) {
      std::copy_n(x, rows * c, out);
      k_.gemm(rows, c, in, {y, in, 1}, {weights, c, 1}, out, c, true);
    } else {
      k_.gemm(rows, c, in, {y, in, 1}, {weights, c, 1}, out, c, false);
      add_up(out, rows * c);
      k_.add_to(rows * c, x, out);
    }
    k_.add_bias(rows, c, bias, out);
  }

  int64_t classify(const T* p, const int32_t* labels, int64_t rows) {
    const int64_t c = width_, n = vocabulary_.size();
    k_.layer_norm(rows, c, last_.data(), p + gain_, p + bias_, norm_.data(), mean_.data(), rstd_.data());
    k_.gemm(rows, n, c, {norm_.data(), c, 1}, {p + tokens_, 1, c}, logits_.data(), n, false);
    if (part_.slices > 1) return sliced_loss_.run(rows, labels, logits_.data(), losses_.data(), *partners_);
    return k_.softmax_cross_entropy(rows, n, labels, logits_.data(), losses_.data());
  }

  void weight_gradient(int64_t in, int64_t out, Leaves rows, const T* x, const T* dy, T* dw, int64_t width,
                       bool add) {
    k_.gemm_tree(in, out, rows, {x, 1, in}, {dy, out, 1}, dw, width, add);
  }

  // What the classifier gives and what the embedding gives are one sum in each leaf: the tree must not
  // be asked twice. Some tokens at a time, so that the sums that wait stay small.
  void token_gradient(const int32_t* ids, Leaves rows, const T* dx, T* out, bool add) {
    const int64_t c = width_, n = vocabulary_.size();
    for (int64_t first = 0; first < n; first += kTokenBlock) {
      const int64_t tokens = std::min(kTokenBlock, n - first);
      const int64_t size = tokens * c;
      int depth = 0;
      int64_t begin = 0;
      for (int leaf = 0; leaf < rows.count; ++leaf) {
        const int64_t end = rows.ends[leaf];
        T* sum = token_sums_.data() + depth * size;
        if (part_.is_last()) {
          k_.gemm(tokens, c, end - begin, {logits_.data() + begin * n + first, 1, n},
                  {norm_.data() + begin * c, c, 1}, sum, c, false);
        } else {
          std::fill_n(sum, size, T(0));
        }
        for (int64_t row = begin; row < end && part_.is_first(); ++row) {
          const int64_t token = ids[row] - vocabulary_.begin - first;
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
  const ModelPart part_;
  Partners<T>* partners_;
  const int64_t context_, width_;
  const Range heads_;       // of a width: those of this slice's heads
  const Range hidden_;      // of the units of c_fc
  const Range vocabulary_;
  const AttentionShape attention_;
  int64_t tokens_, positions_, gain_, bias_;  // offsets
  std::vector<Layer> layers_;
  Buffer<T> last_, norm_, mean_, rstd_, logits_;
  Buffer<T> dx_;        // of the residual stream
  Buffer<T> dc_;        // of something `width` wide
  Buffer<T> wide_;      // of something up to 4 width wide
  Buffer<T> qkv_bias_;  // of this slice, or its gradient
  Buffer<double> losses_;
  SlicedLoss<T> sliced_loss_;
  Buffer<T> token_sums_;
  std::vector<int64_t> row_ends_;
};

}  // namespace dtrain::engine
