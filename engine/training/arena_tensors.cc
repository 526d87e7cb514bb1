#include "engine/training/arena_tensors.h"

#include <utility>

namespace dtrain::engine {

namespace {

void transpose(const float* from, int64_t rows, int64_t columns, float* to) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) to[j * rows + i] = from[i * columns + j];
  }
}

std::vector<int64_t> shape_in_file(const Parameter& parameter) {
  std::vector<int64_t> shape = parameter.shape;
  if (parameter.transposed) std::swap(shape[0], shape[1]);
  return shape;
}

}  // namespace

ArenaTensors::ArenaTensors(const Layout& layout, std::span<const float> arena, const std::string& prefix,
                           std::vector<TensorView>& out) {
  for (const Parameter& parameter : layout.parameters()) {
    TensorView view{prefix + parameter.name, shape_in_file(parameter),
                    arena.subspan(static_cast<size_t>(parameter.offset), static_cast<size_t>(parameter.size()))};
    if (parameter.transposed) {
      Buffer<float>& turned = turned_.emplace_back(parameter.size());
      transpose(view.values.data(), parameter.shape[0], parameter.shape[1], turned.data());
      view.values = {turned.data(), static_cast<size_t>(turned.size())};
    }
    out.push_back(std::move(view));
  }
}

Status read_arena(const SafetensorsFile& file, const Layout& layout, const std::string& prefix,
                  std::span<float> arena) {
  for (const Parameter& parameter : layout.parameters()) {
    const std::vector<int64_t> shape = shape_in_file(parameter);
    const std::span<float> values =
        arena.subspan(static_cast<size_t>(parameter.offset), static_cast<size_t>(parameter.size()));
    if (!parameter.transposed) {
      TRY(file.read(prefix + parameter.name, shape, values));
      continue;
    }
    Buffer<float> turned(parameter.size());
    TRY(file.read(prefix + parameter.name, shape, {turned.data(), values.size()}));
    transpose(turned.data(), shape[0], shape[1], values.data());
  }
  return ok();
}

Status check_arena(const SafetensorsFile& file, const Layout& layout, const std::string& prefix) {
  for (const Parameter& parameter : layout.parameters()) {
    TRY(file.check(prefix + parameter.name, shape_in_file(parameter)));
  }
  return ok();
}

}  // namespace dtrain::engine
