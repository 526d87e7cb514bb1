// LeNet: convolution, ReLU, 2x2 max-pooling, some times; then fully connected layers. The first
// convolution keeps the size of the image, unless padding is off, and any may go without pooling. Images go through in
// blocks (kernels/pixel.h), and no block holds images of two leaves.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "engine/models/dense.h"
#include "engine/models/model.h"

namespace dtrain::engine {

inline int64_t lenet_padding(const LenetSpec& spec) { return spec.padding ? spec.kernel / 2 : 0; }

// The shapes of the convolutions, in order.
inline std::vector<ConvShape> lenet_convolutions(const LenetSpec& spec, const SampleShape& shape) {
  std::vector<ConvShape> shapes;
  int64_t channels = shape.channels, padding = lenet_padding(spec);
  int64_t height = shape.height + 2 * padding, width = shape.width + 2 * padding;
  for (size_t i = 0; i < spec.channels.size(); ++i) {
    // The gradient of the image is not asked for.
    shapes.push_back({channels, spec.channels[i], spec.kernel, height, width, i == 0 ? 0 : spec.kernel - 1, spec.pool[i]});
    channels = spec.channels[i];
    height = shapes.back().pooled_height();
    width = shapes.back().pooled_width();
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

inline std::vector<Piece> lenet_pieces(const LenetSpec& spec, const SampleShape& shape, const ModelPart& part) {
  const Layout layout = lenet_layout(spec, shape);
  const LenetPlan plan = lenet_plan(spec, shape, part);
  Pieces pieces(layout);
  for (int64_t i = 2 * plan.convolutions.begin; i < 2 * plan.convolutions.end; ++i) {
    pieces.whole(static_cast<size_t>(i), part.slices == 1 ? Piece::Own : Piece::Same);
  }
  hold_dense(pieces, plan.dense);
  return pieces.take();
}

template <class Ops>
class Lenet : public Model<typename Ops::Value, typename Ops::Sum> {
 public:
  using T = typename Ops::Value;
  using Sum = typename Ops::Sum;

  Lenet(const Ops& ops, const LenetSpec& spec, const SampleShape& shape, int64_t samples,
        const ModelPart& part, const std::vector<View>& views, Partners<T, Sum>* partners)
      : Lenet(ops, spec, shape, samples, part, views, lenet_plan(spec, shape, part), partners) {}

  Outcome forward(const T* parameters, const Samples<T>& samples, Leaves leaves, const LayerDone& done) override {
    cut_blocks(leaves);
    convolve(parameters, samples.pixels);
    return dense_.forward(parameters, rows_.data(), {}, leaves, samples.labels, done);
  }
  void backward(const T* parameters, const Samples<T>&, Leaves leaves, Sum* gradients, bool add,
                const GradientsReady& ready) override {
    dense_.backward(parameters, rows_.data(), {}, leaves, gradients, add, drows_.data(), ready);
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
  using Memory = typename Ops::template Memory<T>;

  struct Convolution {
    ConvShape conv = {};
    int64_t filters = 0, bias = 0;  // offsets
    int64_t flipped = 0;            // offset of the filters for it
    bool gives_back = false;        // the gradient of its input
    Memory in = {}, dout = {};      // blocks
    // What conv() takes, of the filters and of the flipped ones, and room for it.
    Memory room = {}, back_room = {};
    const T *ready = nullptr, *back_ready = nullptr;
    typename Ops::template Memory<uint8_t> which = {};  // of four was the largest
  };
  struct Block {
    int64_t first, count;  // samples
  };
  // Blocks that go through a layer at once: [first, first + count).
  struct Turn {
    int64_t first, count;
    int64_t first_image, images;
  };

  Lenet(const Ops& ops, const LenetSpec& spec, const SampleShape& shape, int64_t samples,
        const ModelPart& part, const std::vector<View>& views, const LenetPlan& plan, Partners<T, Sum>* partners)
      : ops_(ops),
        part_(part),
        shape_(shape),
        padding_(lenet_padding(spec)),
        row_width_(plan.dense.widths[static_cast<size_t>(plan.dense.layers.begin)]),
        width_out_(plan.dense.widths[static_cast<size_t>(plan.dense.layers.end)]),
        ends_in_rows_(plan.convolutions.end == static_cast<int64_t>(spec.channels.size())),
        dense_(ops, views, plan.dense, samples, partners) {
    // Each leaf may have a block that is not full, but none is empty.
    const int64_t blocks = std::min(samples, (samples + (kBlockImages - 1) * ops_.most_leaves()) / kBlockImages);
    const std::vector<ConvShape> shapes = lenet_convolutions(spec, shape);
    int64_t largest = 0, flipped = 0;
    for (int64_t i = plan.convolutions.begin; i < plan.convolutions.end; ++i) {
      const auto at = static_cast<size_t>(i);
      Convolution& c = convolutions_.emplace_back();
      c.conv = shapes[at];
      c.filters = views[2 * at].offset;
      c.bias = views[2 * at + 1].offset;
      c.gives_back = i > 0;
      c.flipped = flipped;
      flipped += c.conv.out_channels * c.conv.in_channels * c.conv.kernel * c.conv.kernel;
      c.room = Memory(ops_.filter_room(c.conv));
      if (c.gives_back) c.back_room = Memory(ops_.filter_room(back(c.conv)));
      c.in = Memory(blocks * c.conv.in_size());
      c.dout = Memory(blocks * c.conv.dout_size());
      if (c.conv.pool > 1) c.which = typename Ops::template Memory<uint8_t>(blocks * c.conv.pooled_size());
      largest = std::max(largest, std::max(c.conv.out_size(), c.conv.in_size()));
    }
    rows_ = Memory(samples * row_width_);
    drows_ = Memory(samples * row_width_);
    if (convolutions_.empty()) return;
    pooled_ = Memory(blocks * convolutions_.back().conv.pooled_size());
    if (!ends_in_rows_) dpooled_ = Memory(pooled_.size());
    if (!part.is_first()) din_ = Memory(convolutions_.front().in.size());
    turn_ = Memory(ops_.blocks_at_once(blocks) * largest);
    flipped_ = Memory(flipped);
  }

  static uint8_t* which_of(Convolution& c, const Turn& turn) {
    return c.conv.pool == 1 ? nullptr : c.which.data() + turn.first * c.conv.pooled_size();
  }

  // The convolution that gives the gradient of the input of `conv`.
  static ConvShape back(const ConvShape& conv) {
    return {conv.out_channels, conv.in_channels, conv.kernel, conv.dout_height(), conv.dout_width(), 0};
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
    turns_.clear();
    const auto all = static_cast<int64_t>(blocks_.size());
    for (int64_t first = 0; first < all; first += turns_.back().count) {
      const int64_t count = std::min(ops_.blocks_at_once(all), all - first);
      const int64_t image = blocks_[static_cast<size_t>(first)].first;
      const Block& last = blocks_[static_cast<size_t>(first + count - 1)];
      turns_.push_back({first, count, image, last.first + last.count - image});
    }
  }

  void convolve(const T* parameters, const T* pixels) {
    if (convolutions_.empty()) return;
    for (Convolution& c : convolutions_) c.ready = ops_.ready_filters(c.conv, parameters + c.filters, c.room.data());
    for (const Turn& turn : turns_) {
      Convolution& first = convolutions_.front();
      if (part_.is_first()) {
        ops_.rows_to_framed_blocks(turn.images, shape_.channels, shape_.height, shape_.width, padding_,
                                   pixels + turn.first_image * shape_.pixels(),
                                   first.in.data() + turn.first * first.conv.in_size(), turn_.data());
      }
      for (size_t i = 0; i < convolutions_.size(); ++i) {
        Convolution& c = convolutions_[i];
        const bool is_last = i + 1 == convolutions_.size();
        T* pooled = (is_last ? pooled_ : convolutions_[i + 1].in).data() + turn.first * c.conv.pooled_size();
        ops_.conv(c.conv, turn.count, c.in.data() + turn.first * c.conv.in_size(), c.ready, turn_.data());
        ops_.bias_relu_pool(c.conv, turn.count, turn_.data(), parameters + c.bias, pooled, which_of(c, turn));
        if (is_last && ends_in_rows_) {
          ops_.blocks_to_rows(turn.images, row_width_, pooled, rows_.data() + turn.first_image * row_width_);
        }
      }
    }
  }

  void convolve_back(const T* parameters, Sum* gradients, bool add) {
    for (Convolution& c : convolutions_) {
      if (!c.gives_back) continue;
      T* const flipped = flipped_.data() + c.flipped;
      ops_.flip_filters(c.conv, parameters + c.filters, flipped);
      c.back_ready = ops_.ready_filters(back(c.conv), flipped, c.back_room.data());
    }
    for (const Turn& turn : turns_) {
      const T* dpooled = turn_.data();
      if (ends_in_rows_) {
        ops_.rows_to_blocks(turn.images, row_width_, drows_.data() + turn.first_image * row_width_, turn_.data());
      } else {
        dpooled = dpooled_.data() + turn.first * convolutions_.back().conv.pooled_size();
      }
      for (size_t i = convolutions_.size(); i-- > 0;) {
        Convolution& c = convolutions_[i];
        const ConvShape& conv = c.conv;
        const bool is_last = i + 1 == convolutions_.size();
        const T* pooled = (is_last ? pooled_ : convolutions_[i + 1].in).data() + turn.first * conv.pooled_size();
        T* dout = c.dout.data() + turn.first * conv.dout_size();
        ops_.pool_relu_backward(conv, turn.count, pooled, which_of(c, turn), dpooled, dout);
        if (!c.gives_back) break;
        T* din = i == 0 ? din_.data() + turn.first * conv.in_size() : turn_.data();
        ops_.conv(back(conv), turn.count, dout, c.back_ready, din);
        dpooled = din;
      }
    }
    const Leaves leaves{block_ends_.data(), static_cast<int>(block_ends_.size())};
    for (const Convolution& c : convolutions_) {
      ops_.conv_gradients(c.conv, leaves, c.in.data(), c.dout.data(), gradients + c.filters, gradients + c.bias, add);
    }
  }

  Ops ops_;
  const ModelPart part_;
  const SampleShape shape_;
  const int64_t padding_;
  const int64_t row_width_;  // of what the fully connected layers take
  const int64_t width_out_;  // of what they give
  const bool ends_in_rows_;
  std::vector<Convolution> convolutions_;
  Memory pooled_, dpooled_;  // of the last convolution
  Memory din_;               // of the first
  Memory turn_;              // what is between the layers
  Memory flipped_;           // filters for the gradients of inputs
  Memory rows_, drows_;      // samples x row_width_
  DenseLayers<Ops> dense_;
  std::vector<Block> blocks_;
  std::vector<int64_t> block_ends_;  // by leaf
  std::vector<Turn> turns_;
};

}  // namespace dtrain::engine
