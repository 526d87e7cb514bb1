// A batch gives the same gradients, bit for bit, however its leaves are spread; the kernels for floats agree with those
// for doubles; and what is no number shows in the loss. Run for each instruction set (discover.cmake).
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/buffer.h"
#include "engine/models/model.h"
#include "tests/support/sanitized.h"

namespace dtrain::engine {
namespace {

struct Setting {
  const char* name;
  ModelSpec spec;
  SampleShape shape;
};

const std::vector<Setting> kSettings = {
    {"mlp", MlpSpec{{70, 33}}, {.channels = 1, .height = 9, .width = 7, .classes = 10}},
    {"lenet", LenetSpec{5, {6, 16}, {40}}, {.channels = 1, .height = 28, .width = 28, .classes = 10}},
    {"lenet without pooling", LenetSpec{3, {6, 8}, {40}, false, {1, 2}}, {.channels = 1, .height = 28, .width = 28, .classes = 10}},
    {"lenet of many channels", LenetSpec{3, {16, 20}, {40}, false, {1, 2}}, {.channels = 1, .height = 21, .width = 20, .classes = 10}},
    {"gpt", GptSpec{2, 4, 40, 70, 65}, {.context = 70, .vocabulary = 65}},
};

// 37 samples on 8 leaves: 4 or 5 each.
constexpr int64_t kSamples = 37;
constexpr int kLeaves = 8;
int64_t leaf_begin(int leaf) { return leaf * kSamples / kLeaves; }

template <class T>
struct Data {
  explicit Data(const Setting& setting) : layout(layout_of(setting.spec, setting.shape)), parameters(layout.size()) {
    std::mt19937 random(11);
    const auto normal = [&] { return static_cast<T>(std::normal_distribution<float>()(random)); };
    const SampleShape& shape = setting.shape;
    for (const Parameter& p : layout.parameters()) {
      for (int64_t i = 0; i < p.size(); ++i) {
        parameters[p.offset + i] = T(0.1) * normal() + T(p.initial == Initial::One ? 1 : 0);
      }
    }
    for (int64_t i = 0; i < kSamples * shape.pixels(); ++i) pixels.push_back(normal());
    const int64_t rows = kSamples * (shape.context > 0 ? shape.context : 1);
    const int64_t classes = shape.context > 0 ? shape.vocabulary : shape.classes;
    for (int64_t i = 0; i < rows; ++i) {
      ids.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(classes)));
      labels.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(classes)));
    }
  }
  Layout layout;
  Buffer<T> parameters;
  std::vector<T> pixels;
  std::vector<int32_t> ids, labels;
};

// Leaves [first, first + count) alone, by a model of its own.
template <class T>
std::vector<T> gradients_of(const Setting& setting, const Data<T>& data, int first, int count, Outcome* outcome) {
  const int64_t begin = leaf_begin(first), samples = leaf_begin(first + count) - begin;
  std::vector<int64_t> ends;
  for (int leaf = first; leaf < first + count; ++leaf) ends.push_back(leaf_begin(leaf + 1) - begin);
  const int64_t per_sample = setting.shape.context > 0 ? setting.shape.context : 1;
  const Samples<T> part{data.pixels.data() + begin * setting.shape.pixels(), data.ids.data() + begin * per_sample,
                        data.labels.data() + begin * per_sample};
  Buffer<T> gradients(data.layout.size());
  const auto model = make_model<T>(setting.spec, setting.shape, samples);
  *outcome += model->train(data.parameters.data(), part, {ends.data(), count}, gradients.data(), false);
  return {gradients.data(), gradients.data() + gradients.size()};
}

template <class T>
std::vector<T> tree(const Setting& setting, const Data<T>& data, int first, int count, int whole, Outcome* outcome) {
  if (count == whole) return gradients_of(setting, data, first, count, outcome);
  std::vector<T> left = tree(setting, data, first, count / 2, whole, outcome);
  const std::vector<T> right = tree(setting, data, first + count / 2, count / 2, whole, outcome);
  for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

TEST_CASE("gradients are the same bits on 1, 2, 4 and 8 participants") {
  for (const Setting& setting : kSettings) {
    CAPTURE(std::string(setting.name));
    const Data<float> data(setting);
    Outcome alone;
    const std::vector<float> expected = tree(setting, data, 0, kLeaves, kLeaves, &alone);
    for (const int each : {4, 2, 1}) {
      CAPTURE(each);
      Outcome spread;
      const std::vector<float> sums = tree(setting, data, 0, kLeaves, each, &spread);
      CHECK(std::memcmp(sums.data(), expected.data(), sums.size() * sizeof(float)) == 0);
      CHECK(spread.correct == alone.correct);
      CHECK(spread.rows == alone.rows);
      CHECK(spread.loss == doctest::Approx(alone.loss).epsilon(1e-12));
    }
  }
}

TEST_CASE("floats agree with doubles") {
  for (const Setting& setting : kSettings) {
    CAPTURE(std::string(setting.name));
    Outcome single, exact;
    const Data<float> floats(setting);
    const Data<double> doubles(setting);
    const std::vector<float> sums = gradients_of(setting, floats, 0, kLeaves, &single);
    const std::vector<double> expected = gradients_of(setting, doubles, 0, kLeaves, &exact);
    CHECK(single.loss == doctest::Approx(exact.loss).epsilon(1e-5));
    for (const Parameter& p : floats.layout.parameters()) {
      CAPTURE(p.name);
      double error = 0, norm = 0;
      for (int64_t i = p.offset; i < p.offset + p.size(); ++i) {
        const double value = expected[static_cast<size_t>(i)];
        error += std::pow(static_cast<double>(sums[static_cast<size_t>(i)]) - value, 2);
        norm += value * value;
      }
      CHECK(std::sqrt(error) <= 2e-5 * std::sqrt(norm));
    }
  }
}

// A training stops at such a loss: whatever hides one, be it a ReLU, lets it train on, and save, what has overflown.
TEST_CASE("a parameter that is no number makes a loss that is none") {
  for (const Setting& setting : kSettings) {
    CAPTURE(std::string(setting.name));
    Data<float> data(setting);
    for (const Parameter& p : data.layout.parameters()) {
      CAPTURE(p.name);
      const int64_t last = p.range().end - 1;
      for (const int64_t at : tests::kSanitized ? std::vector{last} : std::vector{p.offset, last}) {
        const float before = std::exchange(data.parameters[at], std::numeric_limits<float>::quiet_NaN());
        Outcome outcome;
        gradients_of(setting, data, 0, kLeaves, &outcome);
        CHECK(std::isnan(outcome.loss));
        data.parameters[at] = before;
      }
    }
  }
}

}  // namespace
}  // namespace dtrain::engine
