#include "engine/training/initial.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "engine/cpus.h"
#include "engine/random.h"

namespace dtrain::engine {

namespace {

constexpr int64_t kStretch = 1 << 18;

void draw_initial(const Parameter& parameter, RandomRow& random, std::span<float> values) {
  for (float& value : values) {
    switch (parameter.initial) {
      case Initial::Zero: value = 0; break;
      case Initial::One: value = 1; break;
      case Initial::Uniform: value = static_cast<float>(random.uniform(-parameter.scale, parameter.scale)); break;
      case Initial::Normal: value = static_cast<float>(parameter.scale * random.normal()); break;
    }
  }
}

}  // namespace

void initialise(const Layout& layout, uint64_t seed, std::span<float> params) {
  struct Stretch {
    size_t tensor;
    int64_t begin;
  };
  std::vector<Stretch> stretches;
  for (size_t tensor = 0; tensor < layout.parameters().size(); ++tensor) {
    for (int64_t begin = 0; begin < layout.parameters()[tensor].size(); begin += kStretch) stretches.push_back({tensor, begin});
  }
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t at = next++; at < stretches.size(); at = next++) {
      const auto [tensor, begin] = stretches[at];
      const Parameter& parameter = layout.parameters()[tensor];
      RandomRow random(seed, kParameterStream + static_cast<uint32_t>(tensor), 0);
      random.pass(begin);
      const int64_t count = std::min(kStretch, parameter.size() - begin);
      draw_initial(parameter, random, params.subspan(static_cast<size_t>(parameter.offset + begin), static_cast<size_t>(count)));
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < std::min(static_cast<size_t>(cpus()), stretches.size() / 4); ++i) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
}

}  // namespace dtrain::engine
