// The part of the table of keys that is `engine:`.
#pragma once

#include <optional>
#include <string_view>

#include "schema/spec_keys.h"

namespace dtrain {

// `distributed` is the shape of its roles.
Shape engine_section(Shape distributed);
const Shape& engine_shape();  // the whole of it, as it stands in spec_shape()

// "500 steps", "0.5 epochs", "1 epoch".
struct TrainingSpan {
  double count = 0;
  bool epochs = false;
};
std::optional<TrainingSpan> parse_training_span(std::string_view text);

}  // namespace dtrain
