// What must be known of the data before anything is trained on it. Parameter servers, who read none, hear it from workers.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/data/dataset.h"

namespace dtrain::engine {

// What a sample is: an image of channels x height x width and its class, or context tokens and the
// next one after each.
struct SampleShape {
  int64_t channels = 1, height = 0, width = 0, classes = 0;
  int64_t context = 0, vocabulary = 0;
  int64_t pixels() const { return channels * height * width; }
  bool operator==(const SampleShape&) const = default;
};

// A plain value, as it is sent.
struct DataFacts {
  SampleShape shape;
  int64_t samples = 0;  // to train on
  uint64_t hash = 0;    // of all that is known of what is trained and tested on: other data, another hash
  bool operator==(const DataFacts&) const = default;
};
static_assert(sizeof(DataFacts) == 64);

DataFacts facts_of(const Dataset& train, const std::optional<Dataset>& test);

}  // namespace dtrain::engine
