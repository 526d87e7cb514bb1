#include "engine/layout.h"

#include <fmt/ranges.h>

#include "engine/comm/hash.h"

namespace dtrain::engine {

int64_t Parameter::size() const {
  int64_t size = 1;
  for (const int64_t dimension : shape) size *= dimension;
  return size;
}

int64_t Layout::add(Parameter parameter) {
  parameter.offset = size_;
  size_ += (parameter.size() + kAlignment - 1) / kAlignment * kAlignment;
  parameters_.push_back(std::move(parameter));
  return parameters_.back().offset;
}

uint64_t Layout::hash() const {
  uint64_t hash = kHashStart;
  for (const Parameter& parameter : parameters_) {
    hash = hash_of(fmt::format("{}[{}]@{} ", parameter.name, fmt::join(parameter.shape, ","), parameter.offset), hash);
  }
  return hash;
}

}  // namespace dtrain::engine
