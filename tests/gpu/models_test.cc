// The models on a device against the same models on the CPU in doubles, whose gradients are those of finite
// differences (tests/engine/models/gradient_test.cc): so every operation that a model makes, in its places.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "engine/cuda/device_model.h"
#include "tests/gpu/device_array.h"
#include "tests/support/sanitized.h"

namespace dtrain::engine::cuda {
namespace {

struct Problem {
  ModelSpec spec;
  SampleShape shape;
  int64_t samples;
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

double distance(const std::vector<double>& a, const std::vector<double>& b, Range range) {
  double sum = 0;
  for (auto i = static_cast<size_t>(range.begin); i < static_cast<size_t>(range.end); ++i) sum += std::pow(a[i] - b[i], 2);
  return std::sqrt(sum);
}

// How far an answer may be from the exact one: of the loss, and of the gradients of each parameter their distance.
struct Reach {
  double loss = 0;
  std::vector<double> gradients;
};

// As far as answers go that are exact, but for inputs that are off by some roundings; of many such answers, so that
// what roundings may take over the kink of a ReLU, or make the largest of four pixels, is so in one of them: it changes
// gradients altogether.
Reach reach_of(const Problem& problem, const Inputs& in, const Answer& exact, double rounding, bool twice, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> off(-rounding, rounding);
  const Layout layout = layout_of(problem.spec, problem.shape);
  Reach reach{.gradients = std::vector<double>(layout.parameters().size())};
  for (int i = 0; i < 48; ++i) {
    Inputs shaken = in;
    for (double& value : shaken.parameters) value *= 1 + off(random);
    for (double& value : shaken.pixels) value *= 1 + off(random);
    const Answer answer = on_host(problem, shaken, twice);
    reach.loss = std::max(reach.loss, std::abs(answer.loss - exact.loss));
    for (size_t at = 0; at < reach.gradients.size(); ++at) {
      const Range range = layout.parameters()[at].range();
      reach.gradients[at] = std::max(reach.gradients[at], distance(answer.gradients, exact.gradients, range));
    }
  }
  return reach;
}

void compare(const Problem& problem, const Answer& device, const Answer& host, const Reach& reach) {
  constexpr double kTimes = 2;
  CHECK(device.rows == host.rows);
  CHECK(std::abs(device.loss - host.loss) <= kTimes * reach.loss);
  const Layout layout = layout_of(problem.spec, problem.shape);
  for (size_t at = 0; at < reach.gradients.size(); ++at) {
    const Parameter& p = layout.parameters()[at];
    CAPTURE(p.name);
    CHECK(reach.gradients[at] > 0);
    CHECK(distance(device.gradients, host.gradients, p.range()) <= kTimes * reach.gradients[at]);
  }
}

// Where a small layer's outputs are all below 0, as they are in less than one draw of a thousand, nothing before it has
// gradients.
bool has_all_gradients(const Problem& problem, const Answer& answer) {
  const std::vector<double> none(answer.gradients.size());
  const Layout layout = layout_of(problem.spec, problem.shape);
  return std::ranges::all_of(layout.parameters(),
                             [&](const Parameter& p) { return distance(answer.gradients, none, p.range()) > 0; });
}

template <class T>
void check(const Problem& problem, bool twice = false) {
  const auto context = test_context();
  if (!context) return;
  uint64_t seed = 0;
  Inputs in;
  Answer host;
  for (int draws = 0; draws == 0 || (draws < 20 && !has_all_gradients(problem, host)); ++draws) {
    seed = fresh_seed();
    in = inputs_of(problem, seed);
    host = on_host(problem, in, twice);
  }
  CAPTURE(seed);
  const Answer device = on_device<T>(*context, problem, in, twice);
  compare(problem, device, host, reach_of(problem, in, host, 3 * kRounding<T>, twice, seed));
  if (std::is_same_v<T, double>) CHECK(device.correct == host.correct);
  const Answer again = on_device<T>(*context, problem, in, twice);
  CHECK(again.gradients == device.gradients);  // the same bits
}

Problem mlp() { return {MlpSpec{{21, 16}}, {.channels = 1, .height = 5, .width = 7, .classes = 10}, 37}; }
Problem lenet() {
  return {LenetSpec{5, {6, 7}, {11}}, {.channels = 1, .height = 16, .width = 16, .classes = 5}, 19};
}
Problem odd_lenet() {
  return {LenetSpec{3, {5, 3, 6}, {8}, true, {2, 2, 2}}, {.channels = 3, .height = 27, .width = 25, .classes = 3}, 8};
}
Problem unpooled_lenet() {
  return {LenetSpec{3, {5, 4}, {8}, false, {1, 2}}, {.channels = 1, .height = 13, .width = 12, .classes = 3}, 9};
}
Problem gpt() { return {GptSpec{2, 2, 16, 33, 75}, {.context = 33, .vocabulary = 75}, 3}; }
Problem odd_gpt() { return {GptSpec{2, 1, 5, 12, 30}, {.context = 12, .vocabulary = 30}, 3}; }
Problem wide_gpt() {
  constexpr int64_t kContext = tests::kSanitized ? 10 : 40;
  return {GptSpec{1, 4, 128, kContext, 300}, {.context = kContext, .vocabulary = 300}, 2};
}

TEST_CASE_TEMPLATE("a model's loss and gradients on a device are the CPU's", T, double, float, Bfloat16) {
  SUBCASE("mlp") { check<T>(mlp()); }
  SUBCASE("lenet") { check<T>(lenet()); }
  SUBCASE("lenet of odd sizes") { check<T>(odd_lenet()); }
  SUBCASE("lenet without pooling") { check<T>(unpooled_lenet()); }
  SUBCASE("gpt") { check<T>(gpt()); }
  SUBCASE("gpt of an odd width") { check<T>(odd_gpt()); }
  SUBCASE("gpt of rows in whole packs") { check<T>(wide_gpt()); }
}

TEST_CASE("a model that kernels of a device can't count is refused, and none that they can") {
  const LenetSpec lenet{.kernel = 3, .channels = {8192}, .hidden = {}, .padding = true, .pool = {2}};
  const auto check_images = [&](int64_t height) {
    return check_on_device(lenet, {.channels = 3, .height = height, .width = 256, .classes = 10});
  };
  CHECK(check_images(255).ok());  // 2^32 - 2^24
  const Status images = check_images(256);
  REQUIRE(!images.ok());
  CHECK(images.error().message ==
        "a convolution of 8 images has 4294967296 values, and on GPUs it takes 4294967295 at most");
  const auto check_heads = [](int64_t width) {
    return check_on_device(GptSpec{.heads = 2, .width = static_cast<int>(2 * width)}, {.context = 8, .vocabulary = 8});
  };
  CHECK(check_heads(kMaxHeadWidth).ok());
  CHECK(!check_heads(kMaxHeadWidth + 1).ok());
}

TEST_CASE("a lenet on a device has room for as many blocks of images as its samples fill") {
  const auto context = test_context();
  if (!context) return;
  const auto bytes_for = [&](int64_t samples) {
    const int64_t before = buffer_bytes_made();
    make_device_model<float>(*context, lenet().spec, lenet().shape, samples);
    return buffer_bytes_made() - before;
  };
  const int64_t of_one = bytes_for(1);
  CHECK(bytes_for(kBlockImages) < 2 * of_one);
  CHECK(bytes_for(kBlockImages + 1) < 3 * of_one);
  CHECK(bytes_for(3 * kBlockImages) > 2 * of_one);
}

TEST_CASE_TEMPLATE("gradients on a device are added to what is there when asked", T, double, Bfloat16) {
  SUBCASE("mlp") { check<T>(mlp(), true); }
  SUBCASE("lenet") { check<T>(lenet(), true); }
  SUBCASE("gpt") { check<T>(gpt(), true); }
}

template <class T>
void check_not_finite(Problem problem) {
  problem.samples = 2;   // each of them meets all parameters
  const auto context = test_context();
  if (!context) return;
  const Layout layout = layout_of(problem.spec, problem.shape);
  Inputs in = inputs_of(problem, fresh_seed());
  for (const Parameter& p : layout.parameters()) {
    CAPTURE(p.name);
    double& first = in.parameters[static_cast<size_t>(p.offset)];
    const double before = std::exchange(first, std::numeric_limits<double>::quiet_NaN());
    CHECK(std::isnan(on_device<T>(*context, problem, in, false).loss));
    first = before;
  }
}

TEST_CASE_TEMPLATE("a parameter that is no number makes a loss on a device that is none", T, float, Bfloat16) {
  SUBCASE("mlp") { check_not_finite<T>(mlp()); }
  SUBCASE("lenet") { check_not_finite<T>(lenet()); }
  SUBCASE("lenet without pooling") { check_not_finite<T>(unpooled_lenet()); }
  SUBCASE("gpt") { check_not_finite<T>(gpt()); }
}

}  // namespace
}  // namespace dtrain::engine::cuda
