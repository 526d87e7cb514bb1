#include "engine/cuda/device_model.h"

#include <algorithm>

#include "engine/cuda/device_kernels.h"
#include "engine/models/gpt.h"
#include "engine/models/lenet.h"
#include "engine/models/mlp.h"

namespace dtrain::engine::cuda {

Status check_on_device(const ModelSpec& spec, const SampleShape& shape) {
  if (const auto* gpt = std::get_if<GptSpec>(&spec); gpt != nullptr && gpt->width / gpt->heads > kMaxHeadWidth) {
    return Error{Code::InvalidArgument,
                 fmt::format("heads of {} are wider than the {} that attention on GPUs takes", gpt->width / gpt->heads,
                             kMaxHeadWidth),
                 "more heads"};
  }
  if (const auto* lenet = std::get_if<LenetSpec>(&spec)) {
    for (const ConvShape& conv : lenet_convolutions(*lenet, shape)) {
      const int64_t largest = std::max(conv.in_size(), conv.out_size());
      if (largest <= kMostOfBlock) continue;
      return Error{Code::InvalidArgument,
                   fmt::format("a convolution of {} images has {} values, and on GPUs it takes {} at most", kBlockImages, largest,
                               kMostOfBlock),
                   "fewer channels, or smaller images"};
    }
  }
  return ok();
}

template <class T>
std::unique_ptr<DeviceModel<T>> make_device_model(Context& context, const ModelSpec& spec, const SampleShape& shape,
                                                  int64_t samples, const ModelPart& part,
                                                  Partners<T, Sum<T>>* partners) {
  using Ops = DeviceKernels<T>;
  const Ops ops(context);
  const auto views = part_layout(layout_of(spec, shape), pieces_of(spec, shape, part)).views;
  if (const auto* mlp = std::get_if<MlpSpec>(&spec)) {
    return std::make_unique<Mlp<Ops>>(ops, *mlp, shape, samples, part, views, partners);
  }
  if (const auto* lenet = std::get_if<LenetSpec>(&spec)) {
    return std::make_unique<Lenet<Ops>>(ops, *lenet, shape, samples, part, views, partners);
  }
  return std::make_unique<Gpt<Ops>>(ops, std::get<GptSpec>(spec), shape, samples, part, views, partners);
}

#define DTRAIN_DEVICE_MODEL(T)                                                                                  \
  template std::unique_ptr<DeviceModel<T>> make_device_model<T>(Context&, const ModelSpec&, const SampleShape&, \
                                                                int64_t, const ModelPart&, Partners<T, Sum<T>>*);
DTRAIN_DEVICE_MODEL(float)
DTRAIN_DEVICE_MODEL(double)
DTRAIN_DEVICE_MODEL(Bfloat16)

}  // namespace dtrain::engine::cuda
