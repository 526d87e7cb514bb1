// Fully connected layers with ReLU between them, on the pixels of an image.
#pragma once

#include <vector>

#include "engine/models/dense.h"
#include "engine/models/losses.h"
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
  DenseLayers<float>::add_to(layout, mlp_widths(spec, shape), "layers.");
  return layout;
}

template <class T>
class Mlp : public Model<T> {
 public:
  Mlp(const MlpSpec& spec, const SampleShape& shape, int64_t samples)
      : dense_(mlp_layout(spec, shape), 0, mlp_widths(spec, shape), samples) {}

  Outcome train(const T* parameters, const Samples<T>& samples, Leaves leaves, T* gradients,
                bool add) override {
    const int64_t count = leaves.ends[leaves.count - 1];
    const int64_t correct = dense_.forward(parameters, samples.pixels, count, samples.labels);
    dense_.backward(parameters, samples.pixels, leaves, gradients, add, nullptr);
    return {tree_total(leaves, 1, dense_.losses()), count, correct};
  }

  Outcome evaluate(const T* parameters, const Samples<T>& samples, int64_t count) override {
    const int64_t correct = dense_.forward(parameters, samples.pixels, count, samples.labels);
    return {tree_total({&count, 1}, 1, dense_.losses()), count, correct};
  }

 private:
  DenseLayers<T> dense_;
};

}  // namespace dtrain::engine
