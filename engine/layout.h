// Where each parameter lies. Parameters, gradients and optimiser state are flat arenas with this one
// layout, so that a bucket, the share of a server and a range of a checkpoint are all element ranges.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dtrain::engine {

// [begin, end) in elements.
struct Range {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

enum class Initial { Zero, One, Uniform, Normal };

struct Parameter {
  std::string name;            // as PyTorch would name it: "layers.0.weight"
  std::vector<int64_t> shape;  // in memory, row-major
  bool transposed = false;     // of two dimensions, which files hold swapped: PyTorch's [out, in]
  bool decays = true;          // subject to weight decay
  Initial initial = Initial::Zero;
  double scale = 0;            // Uniform: in [-scale, scale); Normal: the standard deviation
  int64_t offset = 0;          // into every arena

  int64_t size() const;
  Range range() const { return {offset, offset + size()}; }
};

class Layout {
 public:
  // Each parameter starts on a cache line; the elements between two stay zero. Returns its offset.
  int64_t add(Parameter parameter);

  const std::vector<Parameter>& parameters() const { return parameters_; }
  int64_t size() const { return size_; }  // elements of an arena, a multiple of kAlignment
  static constexpr int64_t kAlignment = 16;
  // Other layouts have another: of names, shapes and where they lie.
  uint64_t hash() const;

 private:
  std::vector<Parameter> parameters_;
  int64_t size_ = 0;
};

}  // namespace dtrain::engine
