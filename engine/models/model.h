// A Model is a static plan: forward and backward as straight code over the kernels, no graph. One for
// each thread that trains: it owns the activations of as many samples as it was made for.
#pragma once

#include <cstdint>
#include <memory>

#include "engine/kernels/kernels.h"
#include "engine/layout.h"
#include "schema/engine_spec.h"

namespace dtrain::engine {

// What a sample is: an image of channels x height x width and its class, or context tokens and the
// next one after each.
struct SampleShape {
  int64_t channels = 1, height = 0, width = 0, classes = 0;
  int64_t context = 0, vocabulary = 0;
  int64_t pixels() const { return channels * height * width; }
};

// Samples one after the other. Images: pixels [n][channels height width], labels [n]. Tokens: ids and
// labels [n][context].
template <class T>
struct Samples {
  const T* pixels = nullptr;
  const int32_t* ids = nullptr;
  const int32_t* labels = nullptr;
};

struct Outcome {
  double loss = 0;      // summed over rows, by the tree
  int64_t rows = 0;     // predictions: samples, or samples times context
  int64_t correct = 0;  // of them
  Outcome& operator+=(const Outcome& other) {
    loss += other.loss;
    rows += other.rows;
    correct += other.correct;
    return *this;
  }
};

template <class T>
class Model {
 public:
  virtual ~Model() = default;

  // Forward and backward. `leaves` counts samples, at most those that the model was made for. Every
  // gradient is the sum over samples; with `add`, onto what is in `gradients`.
  virtual Outcome train(const T* parameters, const Samples<T>& samples, Leaves leaves, T* gradients,
                        bool add) = 0;
  // Forward only.
  virtual Outcome evaluate(const T* parameters, const Samples<T>& samples, int64_t count) = 0;
};

Layout layout_of(const ModelSpec& spec, const SampleShape& shape);
template <class T>
std::unique_ptr<Model<T>> make_model(const ModelSpec& spec, const SampleShape& shape, int64_t samples);

// InvalidArgument: the model can't take such samples.
Status check_fit(const ModelSpec& spec, const SampleShape& shape);

}  // namespace dtrain::engine
