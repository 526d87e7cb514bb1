// Gradients of every model, in double precision, against finite differences of the loss: so every
// kernel is compared with the mathematics, the same code that trains being compiled for doubles.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "engine/buffer.h"
#include "engine/models/model.h"

namespace dtrain::engine {
namespace {

// Random parameters and samples of a model, the same for one seed.
struct Problem {
  Problem(ModelSpec model, SampleShape sample, std::vector<int64_t> leaf_ends)
      : spec(std::move(model)), shape(sample), ends(std::move(leaf_ends)), layout(layout_of(spec, shape)),
        parameters(layout.size()), gradients(layout.size()) {
    std::mt19937_64 random(7);
    std::normal_distribution<double> normal;
    for (const Parameter& p : layout.parameters()) {
      for (int64_t i = 0; i < p.size(); ++i) {
        parameters[p.offset + i] = 0.3 * normal(random) + (p.initial == Initial::One ? 1 : 0);
      }
    }
    const int64_t samples = ends.back();
    for (int64_t i = 0; i < samples * shape.pixels(); ++i) pixels.push_back(normal(random));
    for (int64_t i = 0; i < samples * shape.context; ++i) {
      ids.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(shape.vocabulary)));
    }
    const int64_t rows = shape.context > 0 ? samples * shape.context : samples;
    const int64_t classes = shape.context > 0 ? shape.vocabulary : shape.classes;
    for (int64_t i = 0; i < rows; ++i) {
      labels.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(classes)));
    }
    model_ = make_model<double>(spec, shape, samples);
  }

  Samples<double> samples() const { return {pixels.data(), ids.data(), labels.data()}; }
  Leaves leaves() const { return {ends.data(), static_cast<int>(ends.size())}; }
  double loss() { return model_->evaluate(parameters.data(), samples(), ends.back()).loss; }
  Outcome train(bool add = false) {
    return model_->train(parameters.data(), samples(), leaves(), gradients.data(), add);
  }

  ModelSpec spec;
  SampleShape shape;
  std::vector<int64_t> ends;
  Layout layout;
  Buffer<double> parameters, gradients;
  std::vector<double> pixels;
  std::vector<int32_t> ids, labels;
  std::unique_ptr<Model<double>> model_;
};

// Of every parameter tensor up to `most` elements, spread over it.
void compare(Problem& problem, int64_t most) {
  const Outcome outcome = problem.train();
  CHECK(outcome.loss == doctest::Approx(problem.loss()).epsilon(1e-12));
  constexpr double kStep = 1e-5;
  for (const Parameter& p : problem.layout.parameters()) {
    CAPTURE(p.name);
    double norm = 0;
    for (int64_t i = 0; i < p.size(); ++i) norm += std::pow(problem.gradients[p.offset + i], 2);
    norm = std::sqrt(norm / static_cast<double>(p.size()));
    CHECK(norm > 0);
    const int64_t stride = std::max<int64_t>(1, p.size() / most);
    for (int64_t i = 0; i < p.size(); i += stride) {
      double& value = problem.parameters[p.offset + i];
      const double before = value;
      value = before + kStep;
      const double above = problem.loss();
      value = before - kStep;
      const double below = problem.loss();
      value = before;
      const double measured = (above - below) / (2 * kStep);
      CAPTURE(i);
      CHECK(std::abs(problem.gradients[p.offset + i] - measured) <= 1e-6 * (norm + std::abs(measured)));
    }
  }
}

TEST_CASE("the gradients of an mlp are the slopes of its loss") {
  Problem problem(MlpSpec{{13, 9}}, {.channels = 1, .height = 5, .width = 3, .classes = 4}, {2, 3, 3, 7});
  compare(problem, 60);
}

TEST_CASE("the gradients of a lenet are the slopes of its loss") {
  SUBCASE("of even sizes") {
    Problem problem(LenetSpec{5, {6, 7}, {11}}, {.channels = 1, .height = 16, .width = 16, .classes = 5},
                    {9, 11});
    compare(problem, 25);
  }
  SUBCASE("of odd sizes, three channels, three stages") {
    Problem problem(LenetSpec{3, {5, 3, 6}, {8}, true, {2, 2, 2}},
                    {.channels = 3, .height = 27, .width = 25, .classes = 3}, {1, 1, 2, 3});
    compare(problem, 25);
  }
  SUBCASE("without padding, and without pooling but after the second") {
    Problem problem(LenetSpec{3, {5, 3, 6}, {8}, false, {1, 2, 1}},
                    {.channels = 1, .height = 13, .width = 12, .classes = 3}, {1, 1, 2, 3});
    compare(problem, 25);
  }
}

TEST_CASE("the gradients of a lenet of many channels are the slopes of its loss") {
  Problem problem(LenetSpec{3, {16, 17, 18}, {8}, false, {1, 2, 1}},
                  {.channels = 1, .height = 17, .width = 16, .classes = 3}, {1, 1, 2, 9});
  compare(problem, 20);
}

TEST_CASE("the gradients of a gpt are the slopes of its loss") {
  SUBCASE("a block of queries") {
    Problem problem(GptSpec{2, 2, 12, 7, 11}, {.context = 7, .vocabulary = 11}, {1, 3});
    compare(problem, 25);
  }
  SUBCASE("several blocks of queries, many tokens") {
    Problem problem(GptSpec{1, 2, 8, 70, 600}, {.context = 70, .vocabulary = 600}, {1, 2});
    compare(problem, 12);
  }
}

TEST_CASE("gradients are added to what is there when asked") {
  Problem problem(LenetSpec{3, {4}, {6}, true, {2}}, {.channels = 1, .height = 8, .width = 8, .classes = 3}, {1, 3});
  problem.train();
  std::vector<double> once(problem.gradients.data(), problem.gradients.data() + problem.layout.size());
  problem.train(true);
  for (const Parameter& p : problem.layout.parameters()) {
    for (int64_t i = p.offset; i < p.offset + p.size(); ++i) {
      CHECK(problem.gradients[i] == doctest::Approx(2 * once[static_cast<size_t>(i)]).epsilon(1e-12));
    }
  }
}

}  // namespace
}  // namespace dtrain::engine
