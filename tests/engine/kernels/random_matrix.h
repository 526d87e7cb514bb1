#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace dtrain::engine {

inline std::vector<float> random_matrix(int64_t elements, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(elements));
  for (float& each : values) each = normal(random);
  return values;
}

}  // namespace dtrain::engine
