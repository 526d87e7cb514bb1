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
  DenseLayers<float>::add_to(layout, lenet_widths(spec, shape), "layers.");
  return layout;
}

template <class T>
class Lenet : public Model<T> {
 public:
  Lenet(const LenetSpec& spec, const SampleShape& shape, int64_t samples)
      : shape_(shape),
        padding_(spec.kernel / 2),
        features_(lenet_widths(spec, shape).front()),
        dense_(lenet_layout(spec, shape), 2 * spec.channels.size(), lenet_widths(spec, shape), samples) {
    const Layout layout = lenet_layout(spec, shape);
    // Each leaf may have a block that is not full.
    const int64_t blocks = samples / kBlockImages + (int64_t{1} << (kTreeLevels - 1));
    int64_t largest = 0;
    for (const ConvShape& conv : lenet_convolutions(spec, shape)) {
      Stage& stage = stages_.emplace_back();
      stage.conv = conv;
      stage.filters = layout.parameters()[2 * stages_.size() - 2].offset;
      stage.bias = layout.parameters()[2 * stages_.size() - 1].offset;
      stage.in = Buffer<T>(blocks * conv.in_size());
      stage.dout = Buffer<T>(blocks * conv.dout_size());
      stage.which = Buffer<uint8_t>(blocks * conv.pooled_size());
      largest = std::max(largest, std::max(conv.out_size(), conv.in_size()));
    }
    pooled_ = Buffer<T>(blocks * stages_.back().conv.pooled_size());
    one_block_ = Buffer<T>(largest);
    flipped_ = Buffer<T>(layout.size());
    rows_ = Buffer<T>(samples * features_);
    drows_ = Buffer<T>(samples * features_);
  }

  Outcome train(const T* parameters, const Samples<T>& samples, Leaves leaves, T* gradients,
                bool add) override {
    const int64_t count = leaves.ends[leaves.count - 1];
    cut_blocks(leaves);
    forward(parameters, samples.pixels);
    const int64_t correct = dense_.forward(parameters, rows_.data(), count, samples.labels);
    dense_.backward(parameters, rows_.data(), leaves, gradients, add, drows_.data());
    backward(parameters, gradients, add);
    return {tree_total(leaves, 1, dense_.losses()), count, correct};
  }

  Outcome evaluate(const T* parameters, const Samples<T>& samples, int64_t count) override {
    const Leaves one{&count, 1};
    cut_blocks(one);
    forward(parameters, samples.pixels);
    const int64_t correct = dense_.forward(parameters, rows_.data(), count, samples.labels);
    return {tree_total(one, 1, dense_.losses()), count, correct};
  }

 private:
  struct Stage {
    ConvShape conv;
    int64_t filters, bias;  // offsets
    Buffer<T> in, dout;     // blocks
    Buffer<uint8_t> which;  // of four was the largest
  };
  struct Block {
    int64_t first, count;  // samples
  };

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

  void forward(const T* parameters, const T* pixels) {
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const auto block = static_cast<int64_t>(b);
      pad(blocks_[b], pixels, stages_.front().in.data() + block * stages_.front().conv.in_size());
      for (size_t s = 0; s < stages_.size(); ++s) {
        Stage& stage = stages_[s];
        const bool is_last = s + 1 == stages_.size();
        T* pooled = (is_last ? pooled_ : stages_[s + 1].in).data() + block * stage.conv.pooled_size();
        k_.conv(stage.conv, stage.in.data() + block * stage.conv.in_size(),
                parameters + stage.filters, one_block_.data());
        k_.bias_relu_pool(stage.conv, one_block_.data(), parameters + stage.bias, pooled,
                          stage.which.data() + block * stage.conv.pooled_size());
        if (is_last) {
          k_.block_to_rows(blocks_[b].count, features_, pooled, rows_.data() + blocks_[b].first * features_);
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

  void backward(const T* parameters, T* gradients, bool add) {
    for (size_t s = 1; s < stages_.size(); ++s) flip(stages_[s], parameters);
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const auto block = static_cast<int64_t>(b);
      k_.rows_to_block(blocks_[b].count, features_, drows_.data() + blocks_[b].first * features_,
                       one_block_.data());
      for (size_t s = stages_.size(); s-- > 0;) {
        Stage& stage = stages_[s];
        const bool is_last = s + 1 == stages_.size();
        const T* pooled = (is_last ? pooled_ : stages_[s + 1].in).data() + block * stage.conv.pooled_size();
        T* dout = stage.dout.data() + block * stage.conv.dout_size();
        k_.pool_relu_backward(stage.conv, pooled, stage.which.data() + block * stage.conv.pooled_size(),
                              one_block_.data(), dout);
        if (s == 0) break;
        const ConvShape& conv = stage.conv;
        const ConvShape transposed{conv.out_channels, conv.in_channels,   conv.kernel,
                                   conv.dout_height(), conv.dout_width(), 0};
        k_.conv(transposed, dout, flipped_.data() + stage.filters, one_block_.data());
      }
    }
    const Leaves leaves{block_ends_.data(), static_cast<int>(block_ends_.size())};
    for (const Stage& stage : stages_) {
      k_.conv_filter_gradient(stage.conv, leaves, stage.in.data(), stage.dout.data(),
                              gradients + stage.filters, add);
      k_.conv_bias_gradient(stage.conv, leaves, stage.dout.data(), gradients + stage.bias, add);
    }
  }

  // [out][in][y][x] -> [in][out][-y][-x]
  void flip(const Stage& stage, const T* parameters) {
    const ConvShape& c = stage.conv;
    const int64_t taps = c.kernel * c.kernel;
    for (int64_t o = 0; o < c.out_channels; ++o) {
      for (int64_t i = 0; i < c.in_channels; ++i) {
        const T* from = parameters + stage.filters + (o * c.in_channels + i) * taps;
        T* to = flipped_.data() + stage.filters + (i * c.out_channels + o) * taps;
        for (int64_t t = 0; t < taps; ++t) to[taps - 1 - t] = from[t];
      }
    }
  }

  const Kernels<T>& k_ = kernels<T>();
  SampleShape shape_;
  int64_t padding_, features_;
  std::vector<Stage> stages_;
  Buffer<T> pooled_;           // of the last stage
  Buffer<T> one_block_;
  Buffer<T> flipped_;          // filters for the gradients of inputs
  Buffer<T> rows_, drows_;     // samples x features
  DenseLayers<T> dense_;
  std::vector<Block> blocks_;
  std::vector<int64_t> block_ends_;  // by leaf
};

}  // namespace dtrain::engine
