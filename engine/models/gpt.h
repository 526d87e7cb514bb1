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

inline std::vector<Piece> gpt_pieces(const GptSpec& spec, const SampleShape& shape, const ModelPart& part) {
  const Layout layout = gpt_layout(spec, shape);
  Pieces pieces(layout);
  const int64_t c = spec.width;
  const bool is_sliced = part.slices > 1;
  const auto same = [&](size_t p) { pieces.whole(p, is_sliced ? Piece::Same : Piece::Own); };
  const auto rows = [&](size_t p) { pieces.rows(p, part.sliced(layout.parameters()[p].shape.front())); };
  const auto columns = [&](size_t p) { pieces.columns(p, part.sliced(layout.parameters()[p].shape.back())); };
  // Of query, key and value each.
  const auto heads = [&](size_t p) { is_sliced ? pieces.columns(p, c, part.sliced(c)) : pieces.whole(p, Piece::Own); };
  constexpr size_t kTokens = 0, kPositions = 1, kFirst = 2, kEach = 12;
  if (part.stages == 1) {
    rows(kTokens);
  } else if (part.is_first() || part.is_last()) {
    pieces.whole(kTokens, Piece::Partial);
  }
  if (part.is_first()) same(kPositions);
  const Range layers = part.layers(spec.layers);
  for (auto layer = static_cast<size_t>(layers.begin); layer < static_cast<size_t>(layers.end); ++layer) {
    size_t next = kFirst + kEach * layer;
    same(next++), same(next++);        // ln_1
    heads(next++), heads(next++);      // c_attn
    rows(next++), same(next++);        // c_proj
    same(next++), same(next++);        // ln_2
    columns(next++), columns(next++);  // c_fc
    rows(next++), same(next++);        // c_proj
  }
  if (part.is_last()) {
    const size_t last = kFirst + kEach * static_cast<size_t>(spec.layers);
    same(last), same(last + 1);  // ln_f
  }
  return pieces.take();
}

template <class Ops>
class Gpt : public Model<typename Ops::Value, typename Ops::Sum> {
 public:
  using T = typename Ops::Value;
  using Sum = typename Ops::Sum;

  Gpt(const Ops& ops, const GptSpec& spec, const SampleShape& shape, int64_t samples, const ModelPart& part,
      const std::vector<View>& views, Partners<T, Sum>* partners)
      : ops_(ops),
        part_(part),
        partners_(partners),
        context_(shape.context),
        width_(spec.width),
        heads_(part.sliced(spec.width)),
        hidden_(part.sliced(4 * spec.width)),
        vocabulary_(part.sliced(shape.vocabulary)),
        logits_width_(ops_.row_width(vocabulary_.size())),
        attention_{shape.context, part.sliced(spec.heads).size(), heads_.size()} {
    size_t next = 0;
    const auto offset = [&] { return views[next++].offset; };
    const int64_t rows = samples * context_, c = width_;
    tokens_ = offset();
    positions_ = offset();
    const Range layers = part.layers(spec.layers);
    next += 12 * static_cast<size_t>(layers.begin);
    for (int64_t i = layers.begin; i < layers.end; ++i) {
      Layer& l = layers_.emplace_back();
      l.gain1 = offset();
      l.bias1 = offset();
      l.qkv_w = views[next++];
      l.qkv_b = views[next++];
      l.out_w = offset();
      l.out_b = offset();
      l.gain2 = offset();
      l.bias2 = offset();
      l.fc_w = views[next++];
      l.fc_b = offset();
      l.proj_w = offset();
      l.proj_b = offset();
      for (Memory* each : {&l.x, &l.norm1, &l.middle, &l.norm2}) *each = Memory(rows * c);
      for (SumMemory* each : {&l.mean1, &l.rstd1, &l.mean2, &l.rstd2}) *each = SumMemory(rows);
      l.qkv = Memory(rows * 3 * heads_.size());
      l.attended = Memory(rows * heads_.size());
      l.log_sums = SumMemory(rows * attention_.heads);
      l.fc = Memory(rows * hidden_.size());
      l.gelu = Memory(rows * hidden_.size());
    }
    next += 12 * static_cast<size_t>(spec.layers - layers.end);
    gain_ = offset();
    bias_ = offset();
    for (Memory* each : {&last_, &dx_, &dc_}) *each = Memory(rows * c);
    wide_ = Memory(rows * std::max(3 * heads_.size(), hidden_.size()));
    if (std::ranges::any_of(layers_, [&](const Layer& l) { return heads_are_apart(l); })) {
      qkv_bias_ = Memory(3 * heads_.size());
      dqkv_bias_ = SumMemory(3 * heads_.size());
    }
    if (part.is_first() || part.is_last()) token_gradient_ = TokenGradient(vocabulary_, shape.vocabulary, c, rows);
    if (!part.is_last()) return;
    norm_ = Memory(rows * c);
    for (SumMemory* each : {&mean_, &rstd_}) *each = SumMemory(rows);
    logits_ = Memory(rows * logits_width_);
    losses_ = Losses(rows, vocabulary_, part.slices);
  }

  Outcome forward(const T* p, const Samples<T>& samples, Leaves leaves, const LayerDone& done) override {
    const int64_t count = leaves.ends[leaves.count - 1], rows = count * context_, c = width_;
    if (part_.is_first()) embed(p, samples.ids, rows);
    for (size_t i = 0; i < layers_.size(); ++i) {
      Layer& l = layers_[i];
      ops_.layer_norm(rows, c, l.x.data(), p + l.gain1, p + l.bias1, l.norm1.data(), l.mean1.data(),
                      l.rstd1.data());
      project_heads(p, l, rows);
      ops_.attention(attention_, count, l.qkv.data(), l.attended.data(), l.log_sums.data());
      add_branch(rows, heads_.size(), l.x.data(), l.attended.data(), p + l.out_w, p + l.out_b,
                 l.middle.data());
      ops_.layer_norm(rows, c, l.middle.data(), p + l.gain2, p + l.bias2, l.norm2.data(),
                      l.mean2.data(), l.rstd2.data());
      ops_.gemm_bias_gelu(rows, hidden_.size(), c, {l.norm2.data(), c, 1}, {p + l.fc_w.offset, l.fc_w.stride, 1},
                          p + l.fc_b, l.fc.data(), l.gelu.data());
      T* next = (i + 1 < layers_.size() ? layers_[i + 1].x : last_).data();
      add_branch(rows, hidden_.size(), l.middle.data(), l.gelu.data(), p + l.proj_w, p + l.proj_b, next);
      if (done) done();
    }
    if (!part_.is_last()) return {};
    return classify(p, samples.labels, leaves);
  }

  void backward(const T* p, const Samples<T>& samples, Leaves leaves, Sum* g, bool add,
                const GradientsReady& ready) override {
    row_ends_.assign(leaves.ends, leaves.ends + leaves.count);
    for (int64_t& end : row_ends_) end *= context_;
    const Leaves rows_of{row_ends_.data(), leaves.count};
    const int64_t rows = row_ends_.back(), c = width_;
    T *dx = dx_.data(), *dc = dc_.data(), *wide = wide_.data();
    if (part_.is_last()) {
      ops_.gemm(rows, c, vocabulary_.size(), {logits_.data(), logits_width_, 1}, {p + tokens_, c, 1}, dc, c,
                false);
      add_up(dc, rows * c);
      ops_.clear(rows * c, dx);
      ops_.layer_norm_backward(c, rows_of, last_.data(), p + gain_, mean_.data(), rstd_.data(), dc, dx,
                               g + gain_, g + bias_, add);
      if (ready) ready(gain_);
    }
    for (size_t i = layers_.size(); i-- > 0;) {
      const Layer& l = layers_[i];
      weight_gradient(hidden_.size(), c, rows_of, l.gelu.data(), dx, g + l.proj_w, c, add);
      ops_.sum_rows(c, rows_of, dx, g + l.proj_b, add);
      ops_.gemm_gelu_backward(rows, hidden_.size(), c, {dx, c, 1}, {p + l.proj_w, 1, c}, l.fc.data(), wide);
      weight_gradient(c, hidden_.size(), rows_of, l.norm2.data(), wide, g + l.fc_w.offset, l.fc_w.stride, add);
      ops_.sum_rows(hidden_.size(), rows_of, wide, g + l.fc_b, add);
      ops_.gemm(rows, c, hidden_.size(), {wide, hidden_.size(), 1}, {p + l.fc_w.offset, 1, l.fc_w.stride}, dc, c, false);
      add_up(dc, rows * c);
      ops_.layer_norm_backward(c, rows_of, l.middle.data(), p + l.gain2, l.mean2.data(),
                               l.rstd2.data(), dc, dx, g + l.gain2, g + l.bias2, add);
      weight_gradient(heads_.size(), c, rows_of, l.attended.data(), dx, g + l.out_w, c, add);
      ops_.sum_rows(c, rows_of, dx, g + l.out_b, add);
      ops_.gemm(rows, heads_.size(), c, {dx, c, 1}, {p + l.out_w, 1, c}, dc, heads_.size(), false);
      ops_.attention_backward(attention_, leaves.ends[leaves.count - 1], l.qkv.data(), l.attended.data(),
                              l.log_sums.data(), dc, wide);
      project_heads_back(p, l, rows_of, wide, dc, g, add);
      ops_.layer_norm_backward(c, rows_of, l.x.data(), p + l.gain1, l.mean1.data(), l.rstd1.data(), dc,
                               dx, g + l.gain1, g + l.bias1, add);
      if (ready) ready(l.gain1);
    }
    if (part_.is_first()) ops_.position_gradient(c, context_, leaves, dx, g + positions_, add);
    if (part_.is_first() || part_.is_last()) {
      token_gradient_.run(ops_, samples.ids, rows_of, part_.is_last() ? logits_.data() : nullptr, logits_width_,
                          norm_.data(), part_.is_first() ? dx : nullptr, g + tokens_, add);
    }
  }

  int64_t flow_in(Leaves leaves) const override { return part_.is_first() ? 0 : flow(leaves); }
  int64_t flow_out(Leaves leaves) const override { return part_.is_last() ? 0 : flow(leaves); }
  T* input() override { return layers_.front().x.data(); }
  const T* input_gradient() const override { return dx_.data(); }
  const T* output() const override { return last_.data(); }
  T* output_gradient() override { return dx_.data(); }

 private:
  using Memory = typename Ops::template Memory<T>;
  using SumMemory = typename Ops::template Memory<Sum>;
  using Losses = typename Ops::Losses;
  using TokenGradient = typename Ops::TokenGradient;

  struct Layer {
    // Offsets of parameters, of this slice.
    int64_t gain1, bias1, out_w, out_b, gain2, bias2, fc_b, proj_w, proj_b;
    View qkv_w, qkv_b, fc_w;
    // What backward needs again; `x` goes in, `middle` is after attention.
    Memory x, norm1, qkv, attended, middle, norm2, fc, gelu;
    SumMemory log_sums, mean1, rstd1, mean2, rstd2;
  };

  int64_t flow(Leaves leaves) const { return leaves.ends[leaves.count - 1] * context_ * width_; }
  void add_up(T* values, int64_t count) {
    if (part_.slices > 1) partners_->add_up(values, count);
  }

  void embed(const T* p, const int32_t* ids, int64_t rows) {
    T* x = layers_.front().x.data();
    if (part_.slices == 1) {
      ops_.embed(rows, width_, context_, ids, p + tokens_, p + positions_, x);
      return;
    }
    ops_.embed_slice(rows, width_, ids, vocabulary_, p + tokens_, x);
    add_up(x, rows * width_);
    ops_.add_positions(rows, width_, context_, p + positions_, x);
  }

  // Of this slice's heads query, key and value: side by side, or in what all heads have, a width apart.
  bool heads_are_apart(const Layer& l) const { return part_.slices > 1 && l.qkv_w.stride != heads_.size(); }

  void project_heads(const T* p, Layer& l, int64_t rows) {
    const int64_t c = width_, mine = heads_.size();
    const GemmA<T> x{l.norm1.data(), c, 1};
    if (!heads_are_apart(l)) {
      ops_.gemm_bias(rows, 3 * mine, c, x, {p + l.qkv_w.offset, 3 * mine, 1}, p + l.qkv_b.offset, l.qkv.data());
      return;
    }
    for (int64_t i = 0; i < 3; ++i) {
      ops_.gemm(rows, mine, c, x, {p + l.qkv_w.offset + i * c, 3 * c, 1}, l.qkv.data() + i * mine, 3 * mine, false);
      ops_.copy(mine, p + l.qkv_b.offset + i * c, qkv_bias_.data() + i * mine);
    }
    ops_.add_bias(rows, 3 * mine, qkv_bias_.data(), l.qkv.data());
  }

  void project_heads_back(const T* p, const Layer& l, Leaves rows_of, const T* dqkv, T* dx, Sum* g, bool add) {
    const bool apart = heads_are_apart(l);
    const int64_t c = width_, mine = heads_.size(), rows = rows_of.ends[rows_of.count - 1];
    const int64_t pieces = apart ? 3 : 1, columns = 3 * mine / pieces, width = apart ? 3 * c : 3 * mine;
    Sum* db = apart ? dqkv_bias_.data() : g + l.qkv_b.offset;
    ops_.sum_rows(3 * mine, rows_of, dqkv, db, !apart && add);
    for (int64_t i = 0; i < pieces; ++i) {
      const T* dy = dqkv + i * columns;
      ops_.gemm_tree(c, columns, rows_of, {l.norm1.data(), 1, c}, {dy, 3 * mine, 1}, g + l.qkv_w.offset + i * c,
                     width, add);
      ops_.gemm(rows, c, columns, {dy, 3 * mine, 1}, {p + l.qkv_w.offset + i * c, 1, width}, dx, c, i > 0);
      if (!apart) continue;
      Sum* to = g + l.qkv_b.offset + i * c;
      if (add) ops_.add_to(columns, db + i * columns, to);
      if (!add) ops_.copy(columns, db + i * columns, to);
    }
    add_up(dx, rows * c);
  }

  // out = x + y W + bias, y being a slice's.
  void add_branch(int64_t rows, int64_t in, const T* x, const T* y, const T* weights, const T* bias, T* out) {
    const int64_t c = width_;
    if (part_.slices == 1) {
      ops_.gemm_bias_onto(rows, c, in, {y, in, 1}, {weights, c, 1}, bias, x, out);
      return;
    }
    ops_.gemm(rows, c, in, {y, in, 1}, {weights, c, 1}, out, c, false);
    add_up(out, rows * c);
    ops_.add_to(rows * c, x, out);
    ops_.add_bias(rows, c, bias, out);
  }

  Outcome classify(const T* p, const int32_t* labels, Leaves leaves) {
    const int64_t rows = leaves.ends[leaves.count - 1] * context_, c = width_;
    ops_.layer_norm(rows, c, last_.data(), p + gain_, p + bias_, norm_.data(), mean_.data(), rstd_.data());
    ops_.gemm(rows, vocabulary_.size(), c, {norm_.data(), c, 1}, {p + tokens_, 1, c}, logits_.data(),
              logits_width_, false);
    return losses_.run(ops_, leaves, context_, labels, logits_.data(), logits_width_, partners_);
  }

  void weight_gradient(int64_t in, int64_t out, Leaves rows, const T* x, const T* dy, Sum* dw, int64_t width,
                       bool add) {
    ops_.gemm_tree(in, out, rows, {x, 1, in}, {dy, out, 1}, dw, width, add);
  }

  Ops ops_;
  const ModelPart part_;
  Partners<T, Sum>* partners_;
  const int64_t context_, width_;
  const Range heads_;       // of a width: those of this slice's heads
  const Range hidden_;      // of the units of c_fc
  const Range vocabulary_;
  const int64_t logits_width_;  // of a row
  const AttentionShape attention_;
  int64_t tokens_, positions_, gain_, bias_;  // offsets
  std::vector<Layer> layers_;
  Memory last_, norm_, logits_;
  SumMemory mean_, rstd_;
  Memory dx_;    // of the residual stream
  Memory dc_;    // of something `width` wide
  Memory wide_;  // of something up to 4 width wide
  // Of heads that are apart: their bias, and its gradient.
  Memory qkv_bias_;
  SumMemory dqkv_bias_;
  Losses losses_;
  TokenGradient token_gradient_;
  std::vector<int64_t> row_ends_;
};

}  // namespace dtrain::engine
