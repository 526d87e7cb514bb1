// What one arena is in a file: a tensor for each parameter, under its name, as PyTorch has it. Those that
// lie transposed are turned on the way.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/buffer.h"
#include "engine/formats/safetensors.h"
#include "engine/layout.h"

namespace dtrain::engine {

// The views that it adds to `out` are good for as long as it and the arena live.
class ArenaTensors {
 public:
  ArenaTensors(const Layout& layout, std::span<const float> arena, const std::string& prefix,
               std::vector<TensorView>& out);

 private:
  std::vector<Buffer<float>> turned_;
};

// NotFound, InvalidArgument: the file has no such tensor, or of another shape. More than these it may have.
Status read_arena(const SafetensorsFile& file, const Layout& layout, const std::string& prefix,
                  std::span<float> arena);
// The same errors, and reads nothing.
Status check_arena(const SafetensorsFile& file, const Layout& layout, const std::string& prefix);

}  // namespace dtrain::engine
