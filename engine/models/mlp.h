// Fully connected layers with ReLU between them, on the pixels of an image.
#pragma once

#include <vector>

#include "engine/models/dense.h"
#include "engine/models/model.h"

namespace dtrain::engine {

inline std::vector<int64_t> mlp_widths(const MlpSpec& spec, const SampleShape& shape) {
  std::vector<int64_t> widths{shape.pixels()};
  widths.insert(widths.end(), spec.hidden.begin(), spec.hidden.end());
  widths.push_back(shape.classes);
  return widths;
}

inline Layout mlp_layout(const MlpSpec& spec, const SampleShape& shape) {
  Layout layout;
  add_dense(layout, mlp_widths(spec, shape), "layers.");
  return layout;
}

inline DensePlan mlp_plan(const MlpSpec& spec, const SampleShape& shape, const ModelPart& part) {
  DensePlan plan{.widths = mlp_widths(spec, shape), .part = part};
  plan.layers = part.layers(plan.count());
  return plan;
}

inline std::vector<Piece> mlp_pieces(const MlpSpec& spec, const SampleShape& shape, const ModelPart& part) {
  const Layout layout = mlp_layout(spec, shape);
  Pieces pieces(layout);
  hold_dense(pieces, mlp_plan(spec, shape, part));
  return pieces.take();
}

template <class Ops>
class Mlp : public Model<typename Ops::Value, typename Ops::Sum> {
 public:
  using T = typename Ops::Value;
  using Sum = typename Ops::Sum;

  Mlp(const Ops& ops, const MlpSpec& spec, const SampleShape& shape, int64_t samples, const ModelPart& part,
      const std::vector<View>& views, Partners<T, Sum>* partners)
      : part_(part), dense_(ops, views, mlp_plan(spec, shape, part), samples, partners) {
    const DensePlan plan = mlp_plan(spec, shape, part);
    width_in_ = part.is_first() ? 0 : plan.widths[static_cast<size_t>(plan.layers.begin)];
    width_out_ = part.is_last() ? 0 : plan.widths[static_cast<size_t>(plan.layers.end)];
    in_ = Memory(samples * width_in_);
    din_ = Memory(samples * width_in_);
  }

  Outcome forward(const T* parameters, const Samples<T>& samples, Leaves leaves, const LayerDone& done) override {
    return dense_.forward(parameters, input_of(samples), common_of(samples), leaves, samples.labels, done);
  }
  void backward(const T* parameters, const Samples<T>& samples, Leaves leaves, Sum* gradients,
                bool add, const GradientsReady& ready) override {
    dense_.backward(parameters, input_of(samples), common_of(samples), leaves, gradients, add,
                    part_.is_first() ? nullptr : din_.data(), ready);
  }

  int64_t flow_in(Leaves leaves) const override { return leaves.ends[leaves.count - 1] * width_in_; }
  int64_t flow_out(Leaves leaves) const override { return leaves.ends[leaves.count - 1] * width_out_; }
  T* input() override { return in_.data(); }
  const T* input_gradient() const override { return din_.data(); }
  const T* output() const override { return dense_.output(); }
  T* output_gradient() override { return dense_.output_gradient(); }

 private:
  using Memory = typename Ops::template Memory<T>;

  const T* input_of(const Samples<T>& samples) const {
    return part_.is_first() ? samples.pixels : in_.data();
  }
  // What comes from the part before has gone through a ReLU.
  Common<T> common_of(const Samples<T>& samples) const { return part_.is_first() ? samples.common : DenseLayers<Ops>::after_relu(); }

  const ModelPart part_;
  DenseLayers<Ops> dense_;
  int64_t width_in_, width_out_;
  Memory in_, din_;  // where the part before ends
};

}  // namespace dtrain::engine
