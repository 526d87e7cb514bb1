#include "engine/optimizer.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>

namespace dtrain::engine {
namespace {

constexpr int64_t kSize = 5 * 4096;

// Two decaying matrices with biases that don't between them.
Layout layout() {
  Layout layout;
  layout.add({.name = "0.weight", .shape = {70, 100}});
  layout.add({.name = "0.bias", .shape = {100}, .decays = false});
  layout.add({.name = "1.weight", .shape = {100, 131}});
  layout.add({.name = "1.bias", .shape = {kSize - 7008 - 112 - 13104}, .decays = false});
  REQUIRE(layout.size() == kSize);
  return layout;
}

using Arena = std::vector<float>;

Arena random_elements(unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Arena arena(kSize);
  for (float& each : arena) each = normal(random);
  return arena;
}

struct Arenas {
  Arena params = random_elements(1), state0 = Arena(kSize), state1 = Arena(kSize);
};

void update(const OptimizerKernel& kernel, Range range, const OptimizerStep& step, Arenas& a,
            const Arena& grads) {
  const int64_t at = range.begin;
  kernel.update(range, step, a.params.data() + at, grads.data() + at, a.state0.data() + at,
                a.state1.data() + at);
}

// torch.optim's documentation, one element in double.
struct Reference {
  double param, state0 = 0, state1 = 0;

  void step(const OptimizerSpec& o, const OptimizerStep& s, double sum, bool decays) {
    double grad = sum * s.gradient_scale;
    const double decay = decays ? o.weight_decay : 0;
    if (o.kind == Optimizer::AdamW) {
      param -= s.learning_rate * decay * param;
    } else {
      grad += decay * param;
    }
    if (o.kind == Optimizer::Sgd) {
      if (o.momentum != 0) {
        state0 = s.step == 1 ? grad : o.momentum * state0 + grad;
        grad = o.nesterov ? grad + o.momentum * state0 : state0;
      }
      param -= s.learning_rate * grad;
      return;
    }
    state0 = o.beta1 * state0 + (1 - o.beta1) * grad;
    state1 = o.beta2 * state1 + (1 - o.beta2) * grad * grad;
    const double first = state0 / (1 - std::pow(o.beta1, s.step));
    const double second = state1 / (1 - std::pow(o.beta2, s.step));
    param -= s.learning_rate * first / (std::sqrt(second) + o.epsilon);
  }
};

std::vector<OptimizerSpec> all_kinds() {
  return {{.learning_rate = 0.1},
          {.weight_decay = 0.01},
          {.momentum = 0.9, .weight_decay = 0.01},
          {.momentum = 0.9, .nesterov = true},
          {.kind = Optimizer::Adam},
          {.kind = Optimizer::Adam, .weight_decay = 0.1},
          {.kind = Optimizer::AdamW, .beta2 = 0.95, .weight_decay = 0.1}};
}

TEST_CASE("optimisers follow the formulas of PyTorch's documentation") {
  for (const OptimizerSpec& spec : all_kinds()) {
    const Layout l = layout();
    const OptimizerKernel kernel(spec, l);
    Arenas arenas;
    std::vector<Reference> references;
    for (const float param : arenas.params) references.push_back({.param = param});
    for (int64_t step = 1; step <= 10; ++step) {
      const Arena grads = random_elements(static_cast<unsigned>(100 + step));
      const OptimizerStep now{
          .learning_rate = 0.05 / static_cast<double>(step), .gradient_scale = 0.25, .step = step};
      update(kernel, {0, kSize}, now, arenas, grads);
      for (const Parameter& parameter : l.parameters()) {
        for (int64_t i = parameter.range().begin; i < parameter.range().end; ++i) {
          references[static_cast<size_t>(i)].step(spec, now, grads[static_cast<size_t>(i)],
                                                  parameter.decays);
        }
      }
    }
    double sum = 0;
    for (const Parameter& parameter : l.parameters()) {
      for (int64_t i = parameter.range().begin; i < parameter.range().end; ++i) {
        const auto at = static_cast<size_t>(i);
        sum += std::abs(references[at].param - arenas.params[at]);
      }
    }
    CHECK(sum / kSize <
          1e-6);  // a mean: Adam makes much of gradients that cancel to nearly nothing
  }
}

TEST_CASE("an update has the same bits whole and in odd pieces") {
  for (const OptimizerSpec& spec : all_kinds()) {
    const OptimizerKernel kernel(spec, layout());
    Arenas whole, pieces;
    std::mt19937 random(7);
    for (int64_t step = 1; step <= 5; ++step) {
      const Arena grads = random_elements(static_cast<unsigned>(step));
      const OptimizerStep now{.learning_rate = 0.1, .gradient_scale = 1.0 / 48, .step = step};
      update(kernel, {0, kSize}, now, whole, grads);
      for (int64_t begin = 0; begin < kSize;) {
        const int64_t end = std::min<int64_t>(kSize, begin + 1 + random() % 777);
        update(kernel, {begin, end}, now, pieces, grads);
        begin = end;
      }
    }
    CHECK(std::memcmp(whole.params.data(), pieces.params.data(), kSize * 4) == 0);
    CHECK(std::memcmp(whole.state0.data(), pieces.state0.data(), kSize * 4) == 0);
    CHECK(std::memcmp(whole.state1.data(), pieces.state1.data(), kSize * 4) == 0);
  }
}

// As products give gradients: in tiles that lie by themselves, of widths that the update knows and of others.
TEST_CASE("an update has the same bits by blocks of a matrix") {
  const Layout l = layout();
  for (const OptimizerSpec& spec : all_kinds()) {
    const OptimizerKernel kernel(spec, l);
    Arenas whole, blocks;
    for (int64_t step = 1; step <= 3; ++step) {
      const Arena grads = random_elements(static_cast<unsigned>(step));
      const OptimizerStep now{.learning_rate = 0.1, .gradient_scale = 1.0 / 48, .step = step};
      const OptimizerKernel::Constants constants = kernel.constants(now);
      for (const Parameter& parameter : l.parameters()) {
        update(kernel, parameter.range(), now, whole, grads);
        const int64_t columns = parameter.shape.back(), rows = parameter.size() / columns;
        const int64_t ld = columns + 3;
        for (const Range wide : {Range{0, 32}, Range{32, 48}, Range{48, 53}, Range{53, columns}}) {
          for (int64_t row = 0; row < rows; row += 14) {
            const int64_t height = std::min<int64_t>(14, rows - row), at = parameter.offset + row * columns + wide.begin;
            std::vector<float> tile(static_cast<size_t>(height * ld), 1e30f);
            for (int64_t r = 0; r < height; ++r) std::copy_n(grads.data() + at + r * columns, wide.size(), tile.data() + r * ld);
            kernel.update({.width = wide.size(), .rows = height, .stride = columns, .gradient_stride = ld},
                          kernel.decays(at), constants, blocks.params.data() + at, tile.data(),
                          blocks.state0.data() + at, blocks.state1.data() + at);
          }
        }
      }
    }
    CHECK(whole.params == blocks.params);
    CHECK(whole.state0 == blocks.state0);
    CHECK(whole.state1 == blocks.state1);
  }
}

TEST_CASE("plain SGD keeps no state, momentum one arena, Adam two") {
  const std::vector<OptimizerSpec> kinds = all_kinds();
  std::vector<int> states;
  for (const OptimizerSpec& spec : kinds) states.push_back(OptimizerKernel(spec, {}).states());
  CHECK(states == std::vector<int>{0, 0, 1, 1, 2, 2, 2});
}

}  // namespace
}  // namespace dtrain::engine
