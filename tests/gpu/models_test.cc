// The models on a device against the same models on the CPU in doubles, whose gradients are those of finite
// differences (tests/engine/models/gradient_test.cc): so every operation that a model makes, in its places.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "engine/cuda/device_model.h"
#include "tests/gpu/device_array.h"

namespace dtrain::engine::cuda {
namespace {

struct Problem {
  ModelSpec spec;
  SampleShape shape;
  int64_t samples;
  // Rounding to bfloat16 takes a value over the kink of a ReLU, or makes another of four pixels the largest:
  // its gradient is then another one altogether.
  bool has_kinks = false;
};

struct Answer {
  double loss = 0, rows = 0, correct = 0;
  std::vector<double> gradients;
};

struct Inputs {
  std::vector<double> parameters, pixels;
  std::vector<int32_t> ids, labels;
};

uint64_t fresh_seed() {
  const uint64_t seed = std::random_device{}();
  return seed;
}

// Values that bfloat16 has exactly, so that all types start from the same.
double rounded(double value) { return static_cast<double>(static_cast<float>(Bfloat16(static_cast<float>(value)))); }

Inputs inputs_of(const Problem& problem, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const Layout layout = layout_of(problem.spec, problem.shape);
  Inputs in;
  in.parameters.resize(static_cast<size_t>(layout.size()));
  for (const Parameter& p : layout.parameters()) {
    const double width = p.shape.size() > 1 ? static_cast<double>(p.size() / p.shape.back()) : 1;
    for (int64_t i = p.offset; i < p.range().end; ++i) {
      const double spread = p.shape.size() > 1 ? 1 / std::sqrt(width) : 0.2;
      in.parameters[static_cast<size_t>(i)] =
          rounded(spread * normal(random) + (p.initial == Initial::One ? 1 : 0));
    }
  }
  for (int64_t i = 0; i < problem.samples * problem.shape.pixels(); ++i) in.pixels.push_back(rounded(normal(random)));
  const SampleShape& shape = problem.shape;
  const auto draw = [&](int64_t below) {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(below));
  };
  for (int64_t i = 0; i < problem.samples * shape.context; ++i) in.ids.push_back(draw(shape.vocabulary));
  const int64_t rows = problem.samples * std::max<int64_t>(1, shape.context);
  for (int64_t i = 0; i < rows; ++i) in.labels.push_back(draw(shape.context > 0 ? shape.vocabulary : shape.classes));
  return in;
}

Answer on_host(const Problem& problem, const Inputs& in, bool twice) {
  const auto model = make_model<double>(problem.spec, problem.shape, problem.samples);
  Answer answer;
  answer.gradients.resize(in.parameters.size());
  const Samples<double> samples{in.pixels.data(), in.ids.data(), in.labels.data()};
  Outcome outcome;
  for (int i = 0; i < (twice ? 2 : 1); ++i) {
    outcome += model->train(in.parameters.data(), samples, {&problem.samples, 1}, answer.gradients.data(), i > 0);
  }
  answer.loss = outcome.loss;
  answer.rows = static_cast<double>(outcome.rows);
  answer.correct = static_cast<double>(outcome.correct);
  return answer;
}

template <class T>
Answer on_device(Context& context, const Problem& problem, const Inputs& in, bool twice) {
  const auto model = make_device_model<T>(context, problem.spec, problem.shape, problem.samples);
  Array<T> parameters(context, to<T>(in.parameters)), pixels(context, to<T>(in.pixels));
  Array<int32_t> ids(context, in.ids), labels(context, in.labels);
  // What was there before must not matter.
  Array<Sum<T>> gradients(context, std::vector<Sum<T>>(in.parameters.size(), Sum<T>(7)));
  context.device().check(cudaMemsetAsync(context.totals(), 0, sizeof(Totals), context.stream()), "clear");
  const Samples<T> samples{pixels.data(), ids.data(), labels.data()};
  for (int i = 0; i < (twice ? 2 : 1); ++i) {
    model->train(parameters.data(), samples, {&problem.samples, 1}, gradients.data(), i > 0);
  }
  Totals totals;
  context.device().copy_to_host(context.totals(), 1, &totals);
  Answer answer;
  answer.gradients = back(gradients.read());
  answer.loss = totals.loss;
  answer.rows = totals.rows;
  answer.correct = totals.correct;
  return answer;
}

double norm_of(const std::vector<double>& values, Range range) {
  double sum = 0;
  for (int64_t i = range.begin; i < range.end; ++i) sum += std::pow(values[static_cast<size_t>(i)], 2);
  return std::sqrt(sum);
}

// Of every tensor the distance, as a part of its length.
void compare(const Problem& problem, const Answer& device, const Answer& host, double tolerance) {
  CHECK(device.rows == host.rows);
  CHECK(std::abs(device.loss - host.loss) <= tolerance * host.loss);
  const Layout layout = layout_of(problem.spec, problem.shape);
  for (const Parameter& p : layout.parameters()) {
    CAPTURE(p.name);
    std::vector<double> apart(host.gradients);
    for (int64_t i = p.offset; i < p.range().end; ++i) {
      apart[static_cast<size_t>(i)] -= device.gradients[static_cast<size_t>(i)];
    }
    CHECK(norm_of(host.gradients, p.range()) > 0);
    CHECK(norm_of(apart, p.range()) <= tolerance * norm_of(host.gradients, p.range()));
  }
}

// Backward through a few layers rounds a few times.
template <class T>
double tolerance_of(const Problem& problem) {
  if (std::is_same_v<T, Bfloat16> && problem.has_kinks) return 0.75;
  return 8 * kRounding<T>;
}

template <class T>
void check(const Problem& problem, bool twice = false) {
  const auto context = test_context();
  if (!context) return;
  const uint64_t seed = fresh_seed();
  CAPTURE(seed);
  const Inputs in = inputs_of(problem, seed);
  const Answer host = on_host(problem, in, twice);
  const Answer device = on_device<T>(*context, problem, in, twice);
  compare(problem, device, host, tolerance_of<T>(problem));
  if (std::is_same_v<T, double>) CHECK(device.correct == host.correct);
  const Answer again = on_device<T>(*context, problem, in, twice);
  CHECK(again.gradients == device.gradients);  // the same bits
}

Problem mlp() { return {MlpSpec{{21, 16}}, {.channels = 1, .height = 5, .width = 7, .classes = 10}, 37, true}; }
Problem lenet() {
  return {LenetSpec{5, {6, 7}, {11}}, {.channels = 1, .height = 16, .width = 16, .classes = 5}, 19, true};
}
Problem odd_lenet() {
  return {LenetSpec{3, {5, 3, 6}, {8}}, {.channels = 3, .height = 27, .width = 25, .classes = 3}, 8, true};
}
Problem gpt() { return {GptSpec{2, 2, 16, 33, 75}, {.context = 33, .vocabulary = 75}, 3}; }
Problem wide_gpt() { return {GptSpec{1, 4, 128, 40, 300}, {.context = 40, .vocabulary = 300}, 2}; }

TEST_CASE_TEMPLATE("a model's loss and gradients on a device are the CPU's", T, double, float, Bfloat16) {
  SUBCASE("mlp") { check<T>(mlp()); }
  SUBCASE("lenet") { check<T>(lenet()); }
  SUBCASE("lenet of odd sizes") { check<T>(odd_lenet()); }
  SUBCASE("gpt") { check<T>(gpt()); }
  SUBCASE("gpt of rows in whole packs") { check<T>(wide_gpt()); }
}

TEST_CASE_TEMPLATE("gradients on a device are added to what is there when asked", T, double, Bfloat16) {
  SUBCASE("mlp") { check<T>(mlp(), true); }
  SUBCASE("lenet") { check<T>(lenet(), true); }
  SUBCASE("gpt") { check<T>(gpt(), true); }
}

}  // namespace
}  // namespace dtrain::engine::cuda
