// The first values of parameters: each depends on the seed, its tensor and its place in it alone.
#pragma once

#include <span>

#include "engine/layout.h"

namespace dtrain::engine {

void initialise(const Layout& layout, uint64_t seed, std::span<float> params);

}  // namespace dtrain::engine
