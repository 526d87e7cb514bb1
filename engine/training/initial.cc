#include "engine/training/initial.h"

#include "engine/random.h"

namespace dtrain::engine {

void initialise(const Layout& layout, uint64_t seed, std::span<float> params) {
  for (size_t tensor = 0; tensor < layout.parameters().size(); ++tensor) {
    const Parameter& parameter = layout.parameters()[tensor];
    RandomRow random(seed, kParameterStream + tensor, 0);
    float* values = params.data() + parameter.offset;
    for (int64_t i = 0; i < parameter.size(); ++i) {
      switch (parameter.initial) {
        case Initial::Zero: values[i] = 0; break;
        case Initial::One: values[i] = 1; break;
        case Initial::Uniform:
          values[i] = static_cast<float>(random.uniform(-parameter.scale, parameter.scale));
          break;
        case Initial::Normal:
          values[i] = static_cast<float>(parameter.scale * random.normal());
          break;
      }
    }
  }
}

}  // namespace dtrain::engine
