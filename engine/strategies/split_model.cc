#include "engine/strategies/split_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "engine/norm.h"
#include "engine/strategies/not_finite.h"
#include "engine/strategies/notes.h"

namespace dtrain::engine {

namespace {

// Of the groups that a participant is in.
enum Slot { kSlices, kEnds, kColumn };

int parts_of(const RunPlan& plan) {
  const bool mesh = plan.spec.strategy.kind == Strategy::Mesh;
  return mesh ? plan.spec.strategy.mesh_model : static_cast<int>(plan.place.workers.size());
}

// A worker that has threads of its own makes rows of its own, of which the others lack their part.
Status check_threads(const Gang& gang) {
  for (int process = 1; process < gang.size(); ++process) {
    if (gang.peer(process).threads == gang.peer(0).threads) continue;
    return Error{Code::InvalidArgument,
                 fmt::format("{} has {} threads and {} has {} threads: a split model needs as many everywhere",
                             gang.peer(0).name, gang.peer(0).threads, gang.peer(process).name,
                             gang.peer(process).threads),
                 "threads: 1, or the same cpus for all workers"};
  }
  return ok();
}

bool has_one_host(const Grid& grid, const std::vector<int>& participants) {
  return std::ranges::all_of(participants,
                             [&](int p) { return grid.host_of(p) == grid.host_of(participants.front()); });
}

int64_t size_of(const std::vector<Range>& ranges) {
  int64_t size = 0;
  for (const Range range : ranges) size += range.size();
  return size;
}

// The ranges cut into some of so many elements together at most, for both ends alike: memory for one of them is enough,
// and who asks meanwhile has an answer.
std::vector<std::vector<Range>> messages_of(const std::vector<Range>& ranges) {
  constexpr int64_t kMost = int64_t{16} << 20;
  std::vector<std::vector<Range>> messages;
  int64_t room = 0;
  for (Range left : ranges) {
    while (left.size() > 0) {
      if (room == 0) {
        messages.emplace_back();
        room = kMost;
      }
      const int64_t taken = std::min(left.size(), room);
      messages.back().push_back({left.begin, left.begin + taken});
      left.begin += taken;
      room -= taken;
    }
  }
  return messages;
}

void append(std::vector<Range>& to, const std::vector<Range>& ranges) {
  to.insert(to.end(), ranges.begin(), ranges.end());
}

// The elements of the ranges one after the other.
void pack(const float* arena, const std::vector<Range>& ranges, std::vector<float>& to) {
  for (const Range range : ranges) to.insert(to.end(), arena + range.begin, arena + range.end);
}
const float* unpack(const float* from, const std::vector<Range>& ranges, float* arena) {
  for (const Range range : ranges) {
    std::copy_n(from, range.size(), arena + range.begin);
    from += range.size();
  }
  return from;
}

}  // namespace

Result<std::unique_ptr<SplitModel>> SplitModel::open(const RunPlan& plan, std::unique_ptr<Gang> gang) {
  if (const Status status = check_threads(*gang); !status.ok()) {
    gang->fail(status.error());
    return status.error();
  }
  Grid grid(*gang, parts_of(plan));
  const bool pipeline = plan.spec.strategy.kind == Strategy::Pipeline;
  const int64_t leaves = leaf_count(int64_t{grid.data()} * (pipeline ? plan.spec.strategy.micro_batches : 1));
  const OptimizerKernel optimizer(plan.spec.optimizer, plan.layout);
  const int arenas = most_nodes(grid.data(), leaves);
  TRY(auto team, Team::open(*gang,
                            {.elements = plan.layout.size(), .states = optimizer.states(), .arenas = arenas},
                            Deadline::after(plan.spec.deadline_seconds)));
  std::unique_ptr<SplitModel> made(
      new SplitModel(plan, std::move(gang), std::move(team), std::move(grid), leaves));
  if (const Status status = made->connect(); !status.ok()) return made->fail(status.error());
  return made;
}

SplitModel::SplitModel(const RunPlan& plan, std::unique_ptr<Gang> gang, std::unique_ptr<Team> team, Grid grid,
                       int64_t leaves)
    : plan_(plan),
      optimizer_(plan.spec.optimizer, plan.layout),
      gang_(std::move(gang)),
      team_(std::move(team)),
      meeting_(*team_),
      grid_(std::move(grid)),
      leaves_(leaves) {
  own_.resize(static_cast<size_t>(gang_->threads()));
  for (int model = 0; model < grid_.model(); ++model) {
    const ModelPart part = is_pipeline() ? ModelPart{.stage = model, .stages = grid_.model()}
                                         : ModelPart{.slice = model, .slices = grid_.model()};
    held_.push_back(held_by(plan.spec.model, plan.data.shape, part));
    for (int thread = 0; thread < gang_->threads(); ++thread) {
      if (grid_.model_of(first() + thread) == model) own_[static_cast<size_t>(thread)].part = part;
    }
  }
}

Status SplitModel::connect() {
  std::vector<Node> nodes;
  for (int data = 0; data < grid_.data(); ++data) {
    for (const Node& node : nodes_of_row(data)) nodes.push_back(node);
  }
  sum_.emplace(Node{std::countr_zero(static_cast<uint64_t>(leaves_)), 0}, nodes);
  for (int thread = 0; thread < gang_->threads(); ++thread) {
    TRY(connect(first() + thread, own_[static_cast<size_t>(thread)]));
  }
  return ok();
}

Status SplitModel::connect(int me, Own& own) {
  const int model = grid_.model_of(me), data = grid_.data_of(me), last = grid_.model() - 1;
  if (is_pipeline()) {
    const auto stage = [&](int at) {
      return at < 0 || at > last ? std::nullopt : std::optional(grid_.at(data, at));
    };
    TRY(own.pipe, Pipe::open(*team_, me, stage(model - 1), stage(model + 1), plan_.spec.deadline_seconds));
    if (!held(me).partial.empty()) {
      TRY(own.ends, Group::open(*team_, me, {grid_.at(data, 0), grid_.at(data, last)}, kEnds, deadline()));
    }
  } else if (grid_.model() > 1) {
    TRY(auto group, Group::open(*team_, me, grid_.row(data), kSlices, deadline()));
    own.partners = std::make_unique<GroupPartners>(std::move(group), plan_.spec.deadline_seconds);
  }
  const std::vector<int> column = grid_.column(model);
  if (!has_one_host(grid_, column)) {
    // Sums in the order of the rows, whichever host they are on: so what every slice has stays the same.
    TRY(own.column, Group::open(*team_, me, column, kColumn, deadline()));
  } else {
    for (const int member : column) {
      for (size_t node = 0; node < nodes(member).size(); ++node) own.sources.push_back(gradients(member, node));
    }
  }
  own.duties = duties_of(grid_, me, held_);
  // A line that no group has.
  constexpr int kArenas = 100;
  const auto hosts = static_cast<int>(gang_->hosts().size());
  for (int host = 1; host < hosts; ++host) {
    const int there = grid_.first_on(host);
    if (me != 0 && me != there) continue;
    TRY(Channel channel, Channel::open(*team_, me, me == 0 ? there : 0, deadline(), kArenas));
    own.channels.emplace(host, std::move(channel));
  }
  return ok();
}

Seat SplitModel::seat(int me) {
  Own& mine = own(me);
  return {mine.part, mine.partners.get(), mine.pipe.get()};
}

Range SplitModel::evaluated(int me, int64_t samples) const {
  const int64_t data = grid_.data_of(me), all = grid_.data();
  return {samples * data / all, samples * (data + 1) / all};
}

ArenaSizes SplitModel::sizes() const {
  const TeamPlan& plan = team_->plan();
  const auto nodes = static_cast<int64_t>(this->nodes(first()).size());
  return {plan.elements, plan.elements * nodes * plan_.threads, plan.elements * plan.states};
}

Result<Outcome> SplitModel::finish_step(int me, const Update& update, const Outcome& outcome) {
  TRY(add_up_ends(me, update.step));
  TRY(const Outcome total, add_up(me, update.step, outcome));
  TRY(check_loss(total.loss, update.step));
  TRY(sum_column(me, update.step));
  TRY(const double scale, gradient_scale(me, update.step, static_cast<double>(total.rows)));
  const OptimizerStep step{
      .learning_rate = update.learning_rate, .gradient_scale = scale, .step = updates(update.step) + 1};
  const float* sums = gradients(me, 0);
  for (const Duty& duty : own(me).duties) {
    const auto state = [&](int index) {
      return optimizer_.states() > index ? team_->state(index).data() + duty.range.begin : nullptr;
    };
    optimizer_.update(duty.range, step, team_->params().data() + duty.range.begin, sums + duty.range.begin,
                      state(0), state(1));
  }
  TRY(meet_all(me, update.step));
  return total;
}

// What the first and the last stage both know a part of, to both.
Status SplitModel::add_up_ends(int me, int64_t step) {
  Own& mine = own(me);
  if (!mine.ends) return ok();
  const std::vector<Range>& ranges = held(me).partial;
  for (size_t node = 0; node < nodes(me).size(); ++node) {
    for (const Range range : ranges) {
      const std::span<float> values(gradients(me, node) + range.begin, static_cast<size_t>(range.size()));
      TRY(mine.ends->all_reduce(values, deadline(), {step, "sum over first and last stage"}));
    }
  }
  return ok();
}

// On one host everyone sums its duties where they lie, by the tree, into its own first arena: nobody else
// reads that there.
Status SplitModel::sum_column(int me, int64_t step) {
  Own& mine = own(me);
  float* out = gradients(me, 0);
  if (!mine.column) {
    std::vector<const float*> sources(mine.sources.size());
    for (const Duty& duty : mine.duties) {
      for (size_t i = 0; i < sources.size(); ++i) sources[i] = mine.sources[i] + duty.range.begin;
      sum_->run(sources, out + duty.range.begin, duty.range.size());
    }
    return ok();
  }
  std::vector<Range> ranges = held(me).own;
  append(ranges, held(me).same);
  append(ranges, held(me).partial);
  for (size_t node = 1; node < nodes(me).size(); ++node) {
    for (const Range range : ranges) {
      kernels<float>().add_to(range.size(), gradients(me, node) + range.begin, out + range.begin);
    }
  }
  mine.packed.clear();
  pack(out, ranges, mine.packed);
  TRY(mine.column->all_reduce(mine.packed, deadline(), {step, "sum over the batch"}));
  unpack(mine.packed.data(), ranges, out);
  return ok();
}

Result<double> SplitModel::gradient_scale(int me, int64_t step, double rows) {
  if (plan_.spec.clip_norm == 0) return 1 / rows;
  double own_squares = 0;
  std::vector<double> blocks;
  for (const Duty& duty : own(me).duties) {
    if (!duty.counted) continue;
    blocks.resize(static_cast<size_t>(blocks_of(duty.range.size())));
    block_squares({0, duty.range.size()}, gradients(me, 0) + duty.range.begin, blocks.data());
    own_squares += sum_of(blocks);
  }
  std::vector<double> all(static_cast<size_t>(grid_.size()));
  TRY(meeting_.gather(me, step, deadline(), {&own_squares, 1}, all));
  const double squares = sum_of(all);
  if (!std::isfinite(squares)) return wrong_gradient(step);
  return clipped_scale(squares, 1 / rows, plan_.spec.clip_norm);
}

Result<Outcome> SplitModel::add_up(int me, int64_t step, const Outcome& outcome) {
  std::vector<double> all(static_cast<size_t>(grid_.size()) * kNotes);
  TRY(meeting_.gather(me, step, deadline(), notes_of(outcome), all));
  return total_of(all);
}

Status SplitModel::meet_all(int me, int64_t step) {
  return meeting_.gather(me, step, deadline(), {}, {});
}

std::vector<std::span<float>> SplitModel::arenas() const {
  std::vector<std::span<float>> arenas{team_->params()};
  for (int i = 0; i < optimizer_.states(); ++i) arenas.push_back(team_->state(i));
  return arenas;
}

std::vector<Range> SplitModel::held_on(int host) const {
  std::vector<Range> ranges;
  const std::vector<Range>*same = nullptr, *partial = nullptr;
  for (int model = 0; model < grid_.model(); ++model) {
    if (!grid_.is_on(host, model)) continue;
    const Held& held = held_[static_cast<size_t>(model)];
    append(ranges, held.own);
    same = &held.same;
    if (!held.partial.empty()) partial = &held.partial;
  }
  if (same != nullptr) append(ranges, *same);
  if (partial != nullptr) append(ranges, *partial);
  return ranges;
}

std::vector<Range> SplitModel::collected_from(int host) const {
  std::vector<Range> ranges;
  for (int model = 0; model < grid_.model(); ++model) {
    bool is_nearer = false;
    for (int before = 0; before < host; ++before) is_nearer = is_nearer || grid_.is_on(before, model);
    if (grid_.is_on(host, model) && !is_nearer) append(ranges, held_[static_cast<size_t>(model)].own);
  }
  return ranges;
}

Status SplitModel::send_arenas(Channel& channel, Own& mine, const std::vector<Range>& ranges, const Moment& moment) {
  for (const std::span<float> arena : arenas()) {
    for (const std::vector<Range>& message : messages_of(ranges)) {
      mine.packed.clear();
      pack(arena.data(), message, mine.packed);
      TRY(channel.send(mine.packed, deadline(), moment));
    }
  }
  return ok();
}

Status SplitModel::receive_arenas(Channel& channel, Own& mine, const std::vector<Range>& ranges, const Moment& moment) {
  for (const std::span<float> arena : arenas()) {
    for (const std::vector<Range>& message : messages_of(ranges)) {
      mine.packed.resize(static_cast<size_t>(size_of(message)));
      TRY(channel.receive(mine.packed, deadline(), moment));
      unpack(mine.packed.data(), message, arena.data());
    }
  }
  return ok();
}

Status SplitModel::collect(int me, int64_t step) {
  const Moment moment{step, "collect a checkpoint"};
  Own& mine = own(me);
  for (auto& [host, channel] : mine.channels) {
    const std::vector<Range> ranges = collected_from(host);
    TRY(me == 0 ? receive_arenas(channel, mine, ranges, moment) : send_arenas(channel, mine, ranges, moment));
  }
  return ok();
}

// Others of the host see it once they have agreed on the step.
Status SplitModel::distribute(int me, int64_t step, int64_t updates) {
  if (me == 0) ahead_ = updates - step;
  const Moment moment{step, "distribute parameters"};
  Own& mine = own(me);
  for (auto& [host, channel] : mine.channels) {
    const std::vector<Range> ranges = held_on(host);
    TRY(me == 0 ? send_arenas(channel, mine, ranges, moment) : receive_arenas(channel, mine, ranges, moment));
  }
  return meet_all(me, step);
}

Result<int64_t> SplitModel::agree(int me, int64_t step) {
  TRY(const Outcome agreed, add_up(me, step, me == 0 ? counts(step, ahead_) : Outcome{}));
  ahead_ = agreed.correct;
  return agreed.rows;
}

Status SplitModel::wait_for_master(int me, int64_t step) {
  return meeting_.wait_for_first(me, step, kWriteSeconds, plan_.spec.deadline_seconds);
}

}  // namespace dtrain::engine
