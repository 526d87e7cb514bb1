// A Model is a static plan: forward and backward as straight code over operations, no graph. It is a
// whole model or a part of one, and owns the activations of as many samples as it was made for. One for
// each thread that trains, or for each micro-batch on its way.
//
// Each model is one template over the operations that it is made of: HostKernels on the CPU,
// cuda::DeviceKernels on a GPU. All pointers are to where these compute.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/data/data_facts.h"
#include "engine/gradient_taker.h"
#include "engine/kernels/crew.h"
#include "engine/kernels/kernels.h"
#include "engine/layout.h"
#include "engine/models/model_part.h"
#include "engine/models/part_layout.h"
#include "schema/engine_spec.h"

namespace dtrain::engine {

// Samples one after the other. Images: pixels [n][channels height width], labels [n]. Tokens: ids and
// labels [n][context].
template <class T>
struct Samples {
  const T* pixels = nullptr;
  const int32_t* ids = nullptr;
  const int32_t* labels = nullptr;
  Common<T> common = {};   // of pixels
};

struct Outcome {
  double loss = 0;      // summed over rows: within a node by the tree, over nodes and participants in their order
  int64_t rows = 0;     // predictions: samples, or samples times context
  int64_t correct = 0;  // of them
  int64_t asked_to_end = 0;  // participants whose process got TERM
  Outcome& operator+=(const Outcome& other) {
    loss += other.loss;
    rows += other.rows;
    correct += other.correct;
    asked_to_end += other.asked_to_end;
    return *this;
  }
};

// Told after each layer of many that forward has gone through.
using LayerDone = std::function<void()>;
// Told while backward goes through the layers, the last one first: gradients from this offset of the arena on are
// final in what was computed, or enqueued, so far.
using GradientsReady = std::function<void(int64_t offset)>;

// Of a part that is not the first, input() takes what the part before gave, and input_gradient() is
// what that one wants; of a part that is not the last, output() goes to the next one, which returns
// output_gradient(). All lie sample after sample, as many elements as the part's flow_in and flow_out.
// T is what parameters and activations are, Sum what sums over samples are kept in.
template <class T, class Sum = T>
class Model {
 public:
  virtual ~Model() = default;

  // `leaves` counts samples, at most those that the model was made for. What came of them is known to
  // the last part only (of a model on a GPU, to the device: Context::totals()).
  virtual Outcome forward(const T* parameters, const Samples<T>& samples, Leaves leaves, const LayerDone& done = {}) = 0;
  // After forward on the same. Every gradient is the sum over samples; with `add`, onto what is in
  // `gradients`. All are final at the end, whatever `ready` was told.
  virtual void backward(const T* parameters, const Samples<T>& samples, Leaves leaves,
                        Sum* gradients, bool add, const GradientsReady& ready = {}) = 0;

  // Elements for these samples; 0 at the ends of the model.
  virtual int64_t flow_in(Leaves leaves) const = 0;
  virtual int64_t flow_out(Leaves leaves) const = 0;
  virtual T* input() = 0;
  virtual const T* input_gradient() const = 0;
  virtual const T* output() const = 0;
  virtual T* output_gradient() = 0;

  Outcome train(const T* parameters, const Samples<T>& samples, Leaves leaves, Sum* gradients, bool add,
                const GradientsReady& ready = {}) {
    const Outcome outcome = forward(parameters, samples, leaves);
    backward(parameters, samples, leaves, gradients, add, ready);
    return outcome;
  }
  Outcome evaluate(const T* parameters, const Samples<T>& samples, int64_t count, const LayerDone& done = {}) {
    return forward(parameters, samples, {&count, 1}, done);
  }
};

Layout layout_of(const ModelSpec& spec, const SampleShape& shape);
std::vector<Piece> pieces_of(const ModelSpec& spec, const SampleShape& shape, const ModelPart& part);
Held held_by(const ModelSpec& spec, const SampleShape& shape, const ModelPart& part);
// `partners`: where there are several slices. `crew`: those who compute it together. `taker`: of an mlp's gradients,
// in place of the arena. All outlive the model.
// Arenas are of the whole model.
template <class T>
std::unique_ptr<Model<T>> make_model(const ModelSpec& spec, const SampleShape& shape, int64_t samples,
                                     const ModelPart& part = {}, Partners<T>* partners = nullptr,
                                     Crew* crew = nullptr, GradientTaker<T>* taker = nullptr);

// InvalidArgument: the model can't take such samples.
Status check_fit(const ModelSpec& spec, const SampleShape& shape);

}  // namespace dtrain::engine
