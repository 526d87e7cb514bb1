#include "engine/cuda/rank.h"

#include <algorithm>
#include <cmath>

#include "engine/norm.h"
#include "engine/strategies/not_finite.h"

namespace dtrain::engine::cuda {

Result<std::unique_ptr<Rank>> Rank::open(const RunPlan& plan, const ModelPart& part, int ordinal, int states) {
  TRY(auto context,
      Context::open(ordinal, plan.spec.precision == Precision::Tf32 ? Fp32::Tf32 : Fp32::Full));
  const std::string name = context->device().name();
  try {
    std::unique_ptr<Rank> rank(new Rank(plan, part, std::move(context), states));
    TRY(rank->device().status());
    return rank;
  } catch (const std::bad_alloc&) {
    return lacks_memory(name, fmt::format("a model of {} parameters", plan.layout.size()),
                        "a smaller model, or strategy: pipeline or tensor over several GPUs");
  }
}

Rank::Rank(const RunPlan& plan, const ModelPart& part, std::unique_ptr<Context> context, int states)
    : plan_(plan),
      part_(part),
      pieces_(pieces_of(plan.spec.model, plan.data.shape, part)),
      layout_(part_layout(plan.layout, pieces_).layout),
      optimizer_(plan.spec.optimizer, layout_),
      context_(std::move(context)),
      params_(layout_.size()),
      gradients_(layout_.size()),
      squares_(blocks_of(layout_.size())),
      scale_(1),
      told_(1) {
  for (int i = 0; i < states; ++i) states_.emplace_back(layout_.size());
  if (plan.precision() == Precision::Bf16) copy_ = DeviceMemory<Bfloat16>(layout_.size());
  for (End& each : ends_) {
    device().check(cudaEventCreateWithFlags(&each.reached, cudaEventDisableTiming), "make an event");
  }
  for (cudaEvent_t& each : paces_) device().check(cudaEventCreateWithFlags(&each, cudaEventDisableTiming), "make an event");
}

Rank::~Rank() {
  device().use();
  if (!links_status().ok()) abandon();
  for (const End& each : ends_) {
    if (each.reached != nullptr) cudaEventDestroy(each.reached);
  }
  for (const cudaEvent_t each : paces_) {
    if (each != nullptr) cudaEventDestroy(each);
  }
}

void Rank::connect(Links links) {
  links_ = std::move(links);
  if (links_.column == nullptr) return;
  const double asked = plan_.spec.strategy.bucket_mb;
  gradient_sum_ = std::make_unique<GradientSum>(device(), *links_.column, layout_, gradients(),
                                                asked > 0 ? asked : kBucketMb);
}

void Rank::clear_gradients() {
  device().check(cudaMemsetAsync(gradients_.data(), 0, static_cast<size_t>(gradients_.size()) * sizeof(float), stream()),
                 "clear");
}
void Rank::clear_totals() {
  device().check(cudaMemsetAsync(context_->totals(), 0, sizeof(Totals), stream()), "clear");
}

void Rank::abandon() {
  std::vector<Communicator*> all;
  for (Communicator* each : {links_.world.get(), links_.column.get(), links_.row.get()}) {
    if (each != nullptr) all.push_back(each);
  }
  Communicator::abort(all);
}

Status Rank::links_status() const {
  for (Communicator* each : {links_.world.get(), links_.column.get(), links_.row.get()}) {
    if (each != nullptr) TRY(each->status());
  }
  return ok();
}

template <>
const float* Rank::weights<float>() {
  return params_.data();
}
template <>
const Bfloat16* Rank::weights<Bfloat16>() {
  return copy_.data();
}

void Rank::refresh() {
  if (copy_.size() > 0) convert(stream(), layout_.size(), params_.data(), copy_.data());
}

std::vector<Range> Rank::ranges(std::initializer_list<Piece::Whose> whose) const {
  std::vector<Range> ranges;
  for (size_t i = 0; i < pieces_.size(); ++i) {
    if (std::ranges::find(whose, pieces_[i].whose) == whose.end()) continue;
    const int64_t end = i + 1 < pieces_.size() ? layout_.parameters()[i + 1].offset : layout_.size();
    Held::add(ranges, {layout_.parameters()[i].offset, end});
  }
  return ranges;
}

// What every slice has, the first one counts, and what both ends of a pipeline have, the first stage.
void Rank::add_squares() {
  const bool is_first = part_.slice == 0 && part_.stage == 0;
  for (const Range range : is_first ? ranges({Piece::Own, Piece::Same, Piece::Partial}) : ranges({Piece::Own})) {
    block_squares(stream(), range.size(), gradients_.data() + range.begin, squares_.data());
    cuda::add_squares(stream(), blocks_of(range.size()), squares_.data(), context_->totals());
  }
}

Status Rank::update(const Update& update, int64_t updates, const std::function<std::function<Status()>()>& watch) {
  step_scale(stream(), context_->totals(), plan_.spec.clip_norm, scale_.data());
  const OptimizerStep step{.learning_rate = update.learning_rate, .step = updates + 1};
  Status paced = ok();
  int runs = 0;
  optimizer_.for_runs({0, layout_.size()}, [&](Range range, bool decays) {
    if (!paced.ok()) return;
    if (watch && ++runs % kRunsPaced == 0) paced = pace(watch());
    const auto at = [&](DeviceMemory<float>& arena) { return arena.data() + range.begin; };
    Bfloat16* copy = copy_.size() > 0 ? copy_.data() + range.begin : nullptr;
    if (plan_.spec.optimizer.kind == Optimizer::Sgd) {
      const SgdConstants c = optimizer_.sgd(step, decays);
      update_sgd(stream(), range.size(), {c.decay, c.momentum, c.minus_rate, plan_.spec.optimizer.nesterov},
                 scale_.data(), at(params_), at(gradients_), states_.empty() ? nullptr : at(states_[0]), copy);
    } else {
      const AdamConstants c = optimizer_.adam(step, decays);
      update_adam(stream(), range.size(),
                  {c.l2, c.shrink, c.take1, c.beta2, c.take2, c.root_correction, c.epsilon, c.minus_step_size},
                  scale_.data(), at(params_), at(gradients_), at(states_[0]), at(states_[1]), copy);
    }
  });
  TRY(std::move(paced));
  End& end = end_of(update.step);
  end.step = update.step;
  device().copy_to_host(context_->totals(), 1, end.totals.data());
  device().copy_to_host(scale_.data(), 1, end.scale.data());
  device().check(cudaEventRecord(end.reached, stream()), "mark the end of a step");
  return ok();
}

namespace {

Outcome outcome_from(const Totals& totals) {
  return {totals.loss, static_cast<int64_t>(totals.rows), static_cast<int64_t>(totals.correct)};
}

}  // namespace

Status Rank::wait_for(int64_t step, const std::function<Status()>& look) {
  TRY(context_->status());
  const End& end = end_of(step);
  if (end.step != step) return ok();
  TRY(device().wait(end.reached, look));
  return links_status();
}

Result<Outcome> Rank::outcome_of(int64_t step, const std::function<Status()>& look) {
  TRY(wait_for(step, look));
  End& end = end_of(step);
  if (end.step != step) return Outcome{};
  end.step.reset();
  const Outcome outcome = outcome_from(*end.totals);
  if (!std::isfinite(outcome.loss)) return wrong_loss(outcome.loss, step);
  if ((*end.scale).finite == 0) return wrong_gradient(step);
  return outcome;
}

Status Rank::pace(const std::function<Status()>& look) {
  const cudaEvent_t reached = paces_[paced_++ % paces_.size()];
  TRY(device().wait(reached, look));
  device().check(cudaEventRecord(reached, stream()), "mark what is enqueued");
  return device().status();
}

Result<Outcome> Rank::totals(const std::function<Status()>& look) {
  device().copy_to_host(context_->totals(), 1, told_.data());
  TRY(context_->status());
  TRY(device().wait(look));
  TRY(links_status());
  return outcome_from(*told_);
}

}  // namespace dtrain::engine::cuda
