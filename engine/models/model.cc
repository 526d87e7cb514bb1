#include "engine/models/model.h"

#include <algorithm>

#include "engine/models/gpt.h"
#include "engine/models/host_kernels.h"
#include "engine/models/lenet.h"
#include "engine/models/mlp.h"

namespace dtrain::engine {

namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

Error wants(std::string_view model, std::string_view samples) {
  return {Code::InvalidArgument, fmt::format("{} trains on {}, and this is other data", model, samples), ""};
}

}  // namespace

Layout layout_of(const ModelSpec& spec, const SampleShape& shape) {
  return std::visit(Overloaded{[&](const MlpSpec& m) { return mlp_layout(m, shape); },
                               [&](const LenetSpec& m) { return lenet_layout(m, shape); },
                               [&](const GptSpec& m) { return gpt_layout(m, shape); }},
                    spec);
}

std::vector<Piece> pieces_of(const ModelSpec& spec, const SampleShape& shape, const ModelPart& part) {
  return std::visit(Overloaded{[&](const MlpSpec& m) { return mlp_pieces(m, shape, part); },
                               [&](const LenetSpec& m) { return lenet_pieces(m, shape, part); },
                               [&](const GptSpec& m) { return gpt_pieces(m, shape, part); }},
                    spec);
}

Held held_by(const ModelSpec& spec, const SampleShape& shape, const ModelPart& part) {
  return held_of(layout_of(spec, shape), pieces_of(spec, shape, part));
}

template <class T>
std::unique_ptr<Model<T>> make_model(const ModelSpec& spec, const SampleShape& shape, int64_t samples,
                                     const ModelPart& part, Partners<T>* partners, Crew* crew,
                                     GradientTaker<T>* taker) {
  INVARIANT(part.stages == 1 || part.slices == 1, "a model is cut one way");
  INVARIANT(taker == nullptr || std::holds_alternative<MlpSpec>(spec), "all of its gradients are taken");
  INVARIANT(part.slices == 1 || partners != nullptr, "slices need each other");
  const std::vector<View> views = views_in_whole(layout_of(spec, shape), pieces_of(spec, shape, part));
  const HostKernels<T> ops(crew, std::max<int64_t>(1, shape.context), taker);
  return std::visit(Overloaded{[&](const MlpSpec& m) -> std::unique_ptr<Model<T>> {
                                 return std::make_unique<Mlp<HostKernels<T>>>(ops, m, shape, samples, part, views, partners);
                               },
                               [&](const LenetSpec& m) -> std::unique_ptr<Model<T>> {
                                 return std::make_unique<Lenet<HostKernels<T>>>(ops, m, shape, samples, part, views, partners);
                               },
                               [&](const GptSpec& m) -> std::unique_ptr<Model<T>> {
                                 return std::make_unique<Gpt<HostKernels<T>>>(ops, m, shape, samples, part, views, partners);
                               }},
                    spec);
}
template std::unique_ptr<Model<float>> make_model(const ModelSpec&, const SampleShape&, int64_t,
                                                  const ModelPart&, Partners<float>*, Crew*, GradientTaker<float>*);
template std::unique_ptr<Model<double>> make_model(const ModelSpec&, const SampleShape&, int64_t,
                                                   const ModelPart&, Partners<double>*, Crew*, GradientTaker<double>*);

Status check_fit(const ModelSpec& spec, const SampleShape& shape) {
  if (std::holds_alternative<GptSpec>(spec)) {
    return shape.context > 0 ? ok() : Status(wants("gpt", "text or tokens"));
  }
  if (shape.pixels() == 0) {
    return wants(std::holds_alternative<MlpSpec>(spec) ? "mlp" : "lenet", "images");
  }
  if (const auto* lenet = std::get_if<LenetSpec>(&spec)) {
    for (const ConvShape& conv : lenet_convolutions(*lenet, shape)) {
      if (conv.pooled_height() >= 1 && conv.pooled_width() >= 1) continue;
      return Error{Code::InvalidArgument,
                   fmt::format("images of {}x{} are too small for {} convolutions of {}x{}",
                               shape.height, shape.width, lenet->channels.size(), lenet->kernel,
                               lenet->kernel),
                   "a smaller kernel in lenet"};
    }
  }
  return ok();
}

}  // namespace dtrain::engine
