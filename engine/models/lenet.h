// LeNet: convolution, ReLU, 2x2 max-pooling, some times; then fully connected layers. The first
// convolution keeps the size of the image. Images go through in blocks (conv_kernel.h), and no block
// holds images of two leaves.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "engine/models/dense.h"
#include "engine/models/losses.h"
#include "engine/models/model.h"

namespace dtrain::engine {

// The shapes of the convolutions, in order.
inline std::vector<ConvShape> lenet_convolutions(const LenetSpec& spec, const SampleShape& shape) {
  std::vector<ConvShape> shapes;
  int64_t channels = shape.channels, padding = spec.kernel / 2;
  int64_t height = shape.height + 2 * padding, width = shape.width + 2 * padding;
  for (const int out : spec.channels) {
    // The gradient of the image is not asked for.
    shapes.push_back({channels, out, spec.kernel, height, width, shapes.empty() ? 0 : spec.kernel - 1});
    channels = out;
    height = shapes.back().out_height() / 2;
    width = shapes.back().out_width() / 2;
  }
  return shapes;
}

inline std::vector<int64_t> lenet_widths(const LenetSpec& spec, const SampleShape& shape) {
  const ConvShape last = lenet_convolutions(spec, shape).back();
  std::vector<int64_t> widths{last.pooled_size() / kBlockImages};
  widths.insert(widths.end(), spec.hidden.begin(), spec.hidden.end());
  widths.push_back(shape.classes);
  return widths;
}

inline Layout lenet_layout(const LenetSpec& spec, const SampleShape& shape) {
  Layout layout;
  int number = 0;
  for (const ConvShape& conv : lenet_convolutions(spec, shape)) {
    const std::string name = "convolutions." + std::to_string(number++);
    const double bound =
        1 / std::sqrt(static_cast<double>(conv.in_channels * conv.kernel * conv.kernel));
    layout.add({.name = name + ".weight",
                .shape = {conv.out_channels, conv.in_channels, conv.kernel, conv.kernel},
                .initial = Initial::Uniform, .scale = bound});
    layout.add({.name = name + ".bias", .shape = {conv.out_channels}, .initial = Initial::Uniform,
                .scale = bound});
  }
  add_dense(layout, lenet_widths(spec, shape), "layers.");
  return layout;
}

// The layers of a part, convolutions first. Slices are of the fully connected layers only.
struct LenetPlan {
  Range convolutions;
  DensePlan dense;
};

inline LenetPlan lenet_plan(const LenetSpec& spec, const SampleShape& shape, const ModelPart& part) {
  const auto convolutions = static_cast<int64_t>(spec.channels.size());
  DensePlan dense{.widths = lenet_widths(spec, shape), .first = 2 * spec.channels.size(), .part = part};
  const Range layers = part.layers(convolutions + dense.count());
  dense.layers = {std::max<int64_t>(layers.begin - convolutions, 0),
                  std::max<int64_t>(layers.end - convolutions, 0)};
  return {{std::min(layers.begin, convolutions), std::min(layers.end, convolutions)}, std::move(dense)};
}

inline Held lenet_held(const LenetSpec& spec, const SampleShape& shape, const ModelPart& part) {
  const Layout layout = lenet_layout(spec, shape);
  const LenetPlan plan = lenet_plan(spec, shape, part);
  Held held;
  for (int64_t i = 2 * plan.convolutions.begin; i < 2 * plan.convolutions.end; ++i) {
    Held::add(part.slices == 1 ? held.own : held.same, layout.parameters()[static_cast<size_t>(i)].range());
  }
  hold_dense(held, layout, plan.dense);
  return held;
}

template <class T>
class Lenet : public Model<T> {
 public:
  Lenet(const LenetSpec& spec, const SampleShape& shape, int64_t samples, const ModelPart& part,
        Partners<T>* partners)
      : Lenet(spec, shape, samples, part, lenet_plan(spec, shape, part), partners) {}

  Outcome forward(const T* parameters, const Samples<T>& samples, Leaves leaves) override {
    cut_blocks(leaves);
    convolve(parameters, samples.pixels);
    const int64_t count = leaves.ends[leaves.count - 1];
    const int64_t correct = dense_.forward(parameters, rows_.data(), count, samples.labels);
    if (!part_.is_last()) return {};
    return {tree_total(leaves, 1, dense_.losses()), count, correct};
  }
  void backward(const T* parameters, const Samples<T>&, Leaves leaves, T* gradients, bool add) override {
    dense_.backward(parameters, rows_.data(), leaves, gradients, add, drows_.data());
    if (!convolutions_.empty()) convolve_back(parameters, gradients, add);
  }

  // Between two convolutions go blocks, and rows from there on.
  int64_t flow_in(Leaves leaves) const override {
    if (part_.is_first()) return 0;
    if (convolutions_.empty()) return leaves.ends[leaves.count - 1] * row_width_;
    return blocks_in(leaves) * convolutions_.front().conv.in_size();
  }
  int64_t flow_out(Leaves leaves) const override {
    if (part_.is_last()) return 0;
    if (ends_in_rows_) return leaves.ends[leaves.count - 1] * width_out_;
    return blocks_in(leaves) * convolutions_.back().conv.pooled_size();
  }
  T* input() override { return convolutions_.empty() ? rows_.data() : convolutions_.front().in.data(); }
  const T* input_gradient() const override { return convolutions_.empty() ? drows_.data() : din_.data(); }
  const T* output() const override {
    if (!dense_.empty()) return dense_.output();
    return ends_in_rows_ ? rows_.data() : pooled_.data();
  }
  T* output_gradient() override {
    if (!dense_.empty()) return dense_.output_gradient();
    return ends_in_rows_ ? drows_.data() : dpooled_.data();
  }

 private:
  struct Convolution {
    ConvShape conv;
    int64_t filters, bias;  // offsets
    bool gives_back;        // the gradient of its input
    Buffer<T> in = {}, dout = {};  // blocks
    Buffer<uint8_t> which = {};    // of four was the largest
  };
  struct Block {
    int64_t first, count;  // samples
  };

  Lenet(const LenetSpec& spec, const SampleShape& shape, int64_t samples, const ModelPart& part,
        const LenetPlan& plan, Partners<T>* partners)
      : part_(part),
        shape_(shape),
        padding_(spec.kernel / 2),
        row_width_(plan.dense.widths[static_cast<size_t>(plan.dense.layers.begin)]),
        width_out_(plan.dense.widths[static_cast<size_t>(plan.dense.layers.end)]),
        ends_in_rows_(plan.convolutions.end == static_cast<int64_t>(spec.channels.size())),
        dense_(lenet_layout(spec, shape), plan.dense, samples, partners) {
    const Layout layout = lenet_layout(spec, shape);
    // Each leaf may have a block that is not full, but none is empty.
    const int64_t blocks =
        std::min(samples, samples / kBlockImages + (int64_t{1} << (kTreeLevels - 1)));
    const std::vector<ConvShape> shapes = lenet_convolutions(spec, shape);
    int64_t largest = 0;
    for (int64_t i = plan.convolutions.begin; i < plan.convolutions.end; ++i) {
      const auto at = static_cast<size_t>(i);
      const ConvShape& conv = shapes[at];
      convolutions_.push_back({.conv = conv,
                               .filters = layout.parameters()[2 * at].offset,
                               .bias = layout.parameters()[2 * at + 1].offset,
                               .gives_back = i > 0,
                               .in = Buffer<T>(blocks * conv.in_size()),
                               .dout = Buffer<T>(blocks * conv.dout_size()),
                               .which = Buffer<uint8_t>(blocks * conv.pooled_size())});
      largest = std::max(largest, std::max(conv.out_size(), conv.in_size()));
    }
    rows_ = Buffer<T>(samples * row_width_);
    drows_ = Buffer<T>(samples * row_width_);
    if (convolutions_.empty()) return;
    pooled_ = Buffer<T>(blocks * convolutions_.back().conv.pooled_size());
    if (!ends_in_rows_) dpooled_ = Buffer<T>(pooled_.size());
    if (!part.is_first()) din_ = Buffer<T>(convolutions_.front().in.size());
    one_block_ = Buffer<T>(largest);
    flipped_ = Buffer<T>(layout.size());
  }

  static int64_t blocks_in(Leaves leaves) {
    int64_t blocks = 0, begin = 0;
    for (int leaf = 0; leaf < leaves.count; ++leaf) {
      blocks += (leaves.ends[leaf] - begin + kBlockImages - 1) / kBlockImages;
      begin = leaves.ends[leaf];
    }
    return blocks;
  }

  void cut_blocks(Leaves leaves) {
    blocks_.clear();
    block_ends_.clear();
    int64_t sample = 0;
    for (int leaf = 0; leaf < leaves.count; ++leaf) {
      while (sample < leaves.ends[leaf]) {
        const int64_t count = std::min<int64_t>(kBlockImages, leaves.ends[leaf] - sample);
        blocks_.push_back({sample, count});
        sample += count;
      }
      block_ends_.push_back(static_cast<int64_t>(blocks_.size()));
    }
  }

  void convolve(const T* parameters, const T* pixels) {
    for (size_t b = 0; b < blocks_.size() && !convolutions_.empty(); ++b) {
      const auto block = static_cast<int64_t>(b);
      Convolution& first = convolutions_.front();
      if (part_.is_first()) pad(blocks_[b], pixels, first.in.data() + block * first.conv.in_size());
      for (size_t i = 0; i < convolutions_.size(); ++i) {
        Convolution& c = convolutions_[i];
        const bool is_last = i + 1 == convolutions_.size();
        T* pooled = (is_last ? pooled_ : convolutions_[i + 1].in).data() + block * c.conv.pooled_size();
        k_.conv(c.conv, c.in.data() + block * c.conv.in_size(), parameters + c.filters, one_block_.data());
        k_.bias_relu_pool(c.conv, one_block_.data(), parameters + c.bias, pooled,
                          c.which.data() + block * c.conv.pooled_size());
        if (is_last && ends_in_rows_) {
          k_.block_to_rows(blocks_[b].count, row_width_, pooled, rows_.data() + blocks_[b].first * row_width_);
        }
      }
    }
  }

  // The image in a frame of zeros, which stays zero.
  void pad(const Block& block, const T* pixels, T* in) {
    k_.rows_to_block(block.count, shape_.pixels(), pixels + block.first * shape_.pixels(), one_block_.data());
    const int64_t row = shape_.width * kBlockImages, padded = row + 2 * padding_ * kBlockImages;
    for (int64_t c = 0; c < shape_.channels; ++c) {
      for (int64_t y = 0; y < shape_.height; ++y) {
        std::copy_n(one_block_.data() + (c * shape_.height + y) * row, row,
                    in + (c * (shape_.height + 2 * padding_) + y + padding_) * padded +
                        padding_ * kBlockImages);
      }
    }
  }

  void convolve_back(const T* parameters, T* gradients, bool add) {
    for (const Convolution& c : convolutions_) {
      if (c.gives_back) flip(c, parameters);
    }
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const auto block = static_cast<int64_t>(b);
      const T* dpooled = one_block_.data();
      if (ends_in_rows_) {
        k_.rows_to_block(blocks_[b].count, row_width_, drows_.data() + blocks_[b].first * row_width_,
                         one_block_.data());
      } else {
        dpooled = dpooled_.data() + block * convolutions_.back().conv.pooled_size();
      }
      for (size_t i = convolutions_.size(); i-- > 0;) {
        Convolution& c = convolutions_[i];
        const ConvShape& conv = c.conv;
        const bool is_last = i + 1 == convolutions_.size();
        const T* pooled = (is_last ? pooled_ : convolutions_[i + 1].in).data() + block * conv.pooled_size();
        T* dout = c.dout.data() + block * conv.dout_size();
        k_.pool_relu_backward(conv, pooled, c.which.data() + block * conv.pooled_size(), dpooled, dout);
        if (!c.gives_back) break;
        const ConvShape transposed{conv.out_channels, conv.in_channels,   conv.kernel,
                                   conv.dout_height(), conv.dout_width(), 0};
        T* din = i == 0 ? din_.data() + block * conv.in_size() : one_block_.data();
        k_.conv(transposed, dout, flipped_.data() + c.filters, din);
        dpooled = din;
      }
    }
    const Leaves leaves{block_ends_.data(), static_cast<int>(block_ends_.size())};
    for (const Convolution& c : convolutions_) {
      k_.conv_filter_gradient(c.conv, leaves, c.in.data(), c.dout.data(), gradients + c.filters, add);
      k_.conv_bias_gradient(c.conv, leaves, c.dout.data(), gradients + c.bias, add);
    }
  }

  // [out][in][y][x] -> [in][out][-y][-x]
  void flip(const Convolution& convolution, const T* parameters) {
    const ConvShape& c = convolution.conv;
    const int64_t taps = c.kernel * c.kernel;
    for (int64_t o = 0; o < c.out_channels; ++o) {
      for (int64_t i = 0; i < c.in_channels; ++i) {
        const T* from = parameters + convolution.filters + (o * c.in_channels + i) * taps;
        T* to = flipped_.data() + convolution.filters + (i * c.out_channels + o) * taps;
        for (int64_t t = 0; t < taps; ++t) to[taps - 1 - t] = from[t];
      }
    }
  }

  const Kernels<T>& k_ = kernels<T>();
  const ModelPart part_;
  const SampleShape shape_;
  const int64_t padding_;
  const int64_t row_width_;  // of what the fully connected layers take
  const int64_t width_out_;  // of what they give
  const bool ends_in_rows_;
  std::vector<Convolution> convolutions_;
  Buffer<T> pooled_, dpooled_;  // of the last convolution
  Buffer<T> din_;               // of the first
  Buffer<T> one_block_;
  Buffer<T> flipped_;           // filters for the gradients of inputs
  Buffer<T> rows_, drows_;      // samples x row_width_
  DenseLayers<T> dense_;
  std::vector<Block> blocks_;
  std::vector<int64_t> block_ends_;  // by leaf
};

}  // namespace dtrain::engine
