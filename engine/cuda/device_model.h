// The models, made of a GPU's operations.
#pragma once

#include <memory>

#include "engine/cuda/context.h"
#include "engine/models/model.h"

namespace dtrain::engine::cuda {

template <class T>
using DeviceModel = Model<T, Sum<T>>;

// InvalidArgument: a model that GPUs can't take, however much memory they have.
Status check_on_device(const ModelSpec& spec, const SampleShape& shape);

// std::bad_alloc when the device has not enough memory. All outlive the model. Arenas hold the part alone:
// part_layout().
template <class T>
std::unique_ptr<DeviceModel<T>> make_device_model(Context& context, const ModelSpec& spec, const SampleShape& shape,
                                                  int64_t samples, const ModelPart& part = {},
                                                  Partners<T, Sum<T>>* partners = nullptr);

}  // namespace dtrain::engine::cuda
