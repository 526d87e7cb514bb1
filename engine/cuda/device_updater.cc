#include "engine/cuda/device_updater.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <thread>

#include "engine/strategies/notes.h"

namespace dtrain::engine::cuda {

namespace {

// Bytes that participants tell each other, as bits in doubles.
template <class T>
std::array<double, sizeof(T) / sizeof(double)> as_notes(const T& value) {
  std::array<double, sizeof(T) / sizeof(double)> notes;
  std::memcpy(notes.data(), &value, sizeof value);
  return notes;
}
template <class T>
T from_notes(std::span<const double> all, int participant) {
  constexpr size_t kEach = sizeof(T) / sizeof(double);
  T value;
  std::memcpy(&value, all.data() + static_cast<size_t>(participant) * kEach, sizeof value);
  return value;
}

Status check_mesh(const DeviceGrid& grid, const Gang& gang) {
  if (grid.model() * grid.data() == gang.world()) return ok();
  return Error{Code::InvalidArgument,
               fmt::format("a mesh with {} parts of the model needs a multiple of {} GPUs, and there are {}", grid.model(),
                           grid.model(), gang.world()),
               "other gpus: or worker:, or another mesh:"};
}

}  // namespace

Result<std::unique_ptr<DeviceUpdater>> DeviceUpdater::open(const RunPlan& plan, std::unique_ptr<Gang> gang) {
  const DeviceGrid grid(plan.spec.strategy, gang->world());
  if (const Status status = check_mesh(grid, *gang); !status.ok()) {
    gang->fail(status.error());
    return status.error();
  }
  // Slices are summed while copies are, by two communicators on a GPU. Only so NCCL, when it is loaded, promises that these
  // don't wait for each other in a circle: all GPUs get their sums in the order in which the host asks for them.
  if (grid.model() > 1 && grid.data() > 1) ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
  // The team is for notes: its arenas are as small as they can be.
  const TeamPlan team_plan{.elements = Layout::kAlignment};
  TRY(auto team, Team::open(*gang, team_plan, Deadline::after(plan.spec.deadline_seconds)));
  std::unique_ptr<DeviceUpdater> made(new DeviceUpdater(plan, std::move(gang), std::move(team)));
  std::vector<Status> statuses(static_cast<size_t>(plan.threads), ok());
  made->in_threads([&](int thread) {
    Status status = made->start(made->first() + thread);
    if (!status.ok()) statuses[static_cast<size_t>(thread)] = made->fail(status.error());
  });
  for (Status& status : statuses) TRY(std::move(status));
  return made;
}

// Communicators end when all their members on a host do: one after the other would wait for the next.
DeviceUpdater::~DeviceUpdater() {
  in_threads([&](int thread) { ranks_[static_cast<size_t>(thread)].reset(); });
}

void DeviceUpdater::in_threads(const std::function<void(int thread)>& work) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < plan_.threads; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
}

DeviceUpdater::DeviceUpdater(const RunPlan& plan, std::unique_ptr<Gang> gang, std::unique_ptr<Team> team)
    : plan_(plan),
      gang_(std::move(gang)),
      team_(std::move(team)),
      meeting_(*team_),
      grid_(plan.spec.strategy, gang_->world()),
      leaves_(leaf_count(grid_.data())),
      state_count_(OptimizerKernel(plan.spec.optimizer, plan.layout).states()),
      ranks_(static_cast<size_t>(plan.threads)),
      own_(static_cast<size_t>(plan.threads)) {
  for (int model = 0; model < grid_.model(); ++model) {
    pieces_.push_back(pieces_of(plan.spec.model, plan.data.shape, grid_.part(model)));
    layouts_.push_back(part_layout(plan.layout, pieces_.back()).layout);
  }
  if (!plan.place.is_master()) return;
  params_ = Buffer<float>(plan.layout.size());
  for (int i = 0; i < state_count_; ++i) states_.emplace_back(plan.layout.size());
}

Status DeviceUpdater::start(int me) {
  const int model = grid_.model_of(me), data = grid_.data_of(me);
  auto& mine = ranks_[static_cast<size_t>(me - first())];
  TRY(mine, Rank::open(plan_, grid_.part(model), me - first(), state_count_));
  if (gang_->world() == 1) return ok();
  TRY(check_alone(me));
  Links links;
  std::vector<int> everyone(static_cast<size_t>(gang_->world()));
  std::iota(everyone.begin(), everyone.end(), 0);
  TRY(links.world, meet(me, everyone));
  if (grid_.data() == 1) {
    links.row = links.world;
  } else if (grid_.model() == 1) {
    links.column = links.world;
  } else {
    TRY(links.column, meet(me, grid_.column(model)));
    TRY(links.row, meet(me, grid_.row(data)));
  }
  mine->connect(std::move(links));
  if (data > 0) return ok();
  for (int other = 1; other < grid_.model(); ++other) {
    if (me != 0 && me != other) continue;
    TRY(Channel channel, Channel::open(*team_, me, me == 0 ? other : 0, deadline()));
    own(me).channels.push_back(std::move(channel));
  }
  return ok();
}

// NCCL would only say that something is wrong, on the host where it is.
Status DeviceUpdater::check_alone(int me) {
  using Uuid = std::array<char, 16>;
  Uuid uuid;
  std::memcpy(uuid.data(), rank(me).device().uuid().data(), uuid.size());
  std::vector<double> all(static_cast<size_t>(gang_->world()) * as_notes(uuid).size());
  TRY(meeting_.gather(me, 0, deadline(), as_notes(uuid), all));
  for (int other = 0; other < gang_->world(); ++other) {
    if (other == me || from_notes<Uuid>(all, other) != uuid) continue;
    return Error{Code::InvalidArgument,
                 fmt::format("{} and {} have the same GPU, {}", gang_->participant_name(std::min(me, other)),
                             gang_->participant_name(std::max(me, other)), rank(me).device().described()),
                 "a GPU for each: gpus: 1 in resources, and CUDA_VISIBLE_DEVICES left as it is"};
  }
  return ok();
}

// Everyone calls it, with the group that it is in: the first of each makes what the others find it by.
Result<std::shared_ptr<Communicator>> DeviceUpdater::meet(int me, const std::vector<int>& members) {
  Communicator::Id id = {};
  if (members.front() == me) {
    TRY(id, Communicator::make_id());
  }
  std::vector<double> all(static_cast<size_t>(gang_->world()) * as_notes(id).size());
  TRY(meeting_.gather(me, 0, deadline(), as_notes(id), all));
  const auto at = static_cast<int>(std::ranges::find(members, me) - members.begin());
  TRY(auto communicator, Communicator::open(from_notes<Communicator::Id>(all, members.front()), at,
                                            static_cast<int>(members.size()), plan_.spec.deadline_seconds));
  return std::shared_ptr<Communicator>(std::move(communicator));
}

ArenaSizes DeviceUpdater::sizes() const {
  ArenaSizes sizes;
  for (const auto& rank : ranks_) {
    sizes.parameters += rank->layout().size();
    sizes.gradients += rank->layout().size();
    sizes.state += rank->layout().size() * state_count_;
  }
  return sizes;
}

std::function<Status()> DeviceUpdater::watch(int me, int64_t step, const char* doing) {
  if (gang_->world() == 1) return {};
  return [this, me, moment = Moment{step, doing}, wait = Wait(deadline())]() mutable -> Status {
    const Status status = look(me, moment, wait);
    return status.ok() ? status : give_up(me, status.error());
  };
}

Status DeviceUpdater::look(int me, const Moment& moment, Wait& wait) {
  TRY(team_->look(moment, [this] { return gang_->asking().anyone(); }));
  TRY(rank(me).links_status());
  Status status = ok();
  if (gang_->size() > 1 && wait.until.expired()) status = team_->overdue(wait, {}, moment);
  if (gang_->size() == 1 && wait.deadline.expired()) {
    const std::string text = fmt::format("GPUs did not answer for {:g} s", wait.deadline.seconds());
    status = moment.during({Code::DeadlineExceeded, text, ""});
  }
  if (status.ok()) return status;
  Error error = std::move(status).error();
  error.hint = "NCCL_DEBUG=INFO says what NCCL waits for";
  return error;
}

// What is on its way would keep the GPU waiting for ever. The others are told why before they see that it is gone.
Error DeviceUpdater::give_up(int me, const Error& why) {
  Error first = fail(why);
  rank(me).abandon();
  return first;
}

Result<Outcome> DeviceUpdater::finish_step(int me, const Update& update, const Outcome&) {
  Rank& mine = rank(me);
  mine.device().use();
  try {
    const Status enqueued = enqueue(me, mine, update);
    if (!enqueued.ok()) return give_up(me, enqueued.error());
  } catch (const std::bad_alloc&) {
    return give_up(me, lacks_memory(mine.device().name(), "what an update works in", "a smaller micro-batch"));
  }
  return settle(me, update.step - 1);
}

Result<Outcome> DeviceUpdater::settle(int me, int64_t step) {
  Rank& mine = rank(me);
  mine.device().use();
  Result<Outcome> outcome = mine.outcome_of(step, watch(me, step, "all-reduce"));
  if (!outcome.ok()) return give_up(me, outcome.error());
  return outcome;
}

Status DeviceUpdater::enqueue(int me, Rank& mine, const Update& update) {
  const Links& links = mine.links();
  Totals* totals = mine.context().totals();
  if (grid_.is_pipeline()) add_up_ends(mine);
  if (mine.gradient_sum() != nullptr) mine.gradient_sum()->finish();
  // Each slice computed this gradient, with the products that were fastest there: its copies would drift apart.
  if (const auto same = mine.ranges({Piece::Same}); !same.empty()) links.row->broadcast(mine.stream(), mine.gradients(), same, 0);
  // Slices know all the same: the first of them tells.
  if (mine.part().slice > 0) mine.clear_totals();
  if (plan_.spec.clip_norm != 0 && grid_.data_of(me) == 0) mine.add_squares();
  if (links.world != nullptr) links.world->all_reduce(mine.stream(), &totals->loss, kTotals);
  if (links.world == nullptr) return mine.update(update, updates(update.step));
  TRY(mine.update(update, updates(update.step), [&] { return watch(me, update.step, "all-reduce"); }));
  return meeting_.gather(me, update.step, deadline(), {}, {});
}

// What the first and the last stage both have: each sums the two parts of its gradient.
void DeviceUpdater::add_up_ends(Rank& mine) {
  const ModelPart& part = mine.part();
  if (part.stages == 1 || (!part.is_first() && !part.is_last())) return;
  const int other = part.is_first() ? part.stages - 1 : 0;
  for (size_t i = 0; i < mine.pieces().size(); ++i) {
    if (mine.pieces()[i].whose != Piece::Partial) continue;
    const Parameter& shared = mine.layout().parameters()[i];
    const auto bytes = shared.size() * static_cast<int64_t>(sizeof(float));
    float* const theirs = mine.context().work<float>(shared.size());
    float* const gradient = mine.gradients() + shared.offset;
    mine.links().row->pass(mine.stream(), {.out = gradient, .out_bytes = bytes, .to = other,
                                           .in = theirs, .in_bytes = bytes, .from = other});
    add_to(mine.stream(), shared.size(), theirs, gradient);
  }
}

Result<Outcome> DeviceUpdater::add_up(int me, int64_t step, const Outcome& outcome) {
  std::vector<double> all(static_cast<size_t>(gang_->world()) * kNotes);
  TRY(meeting_.gather(me, step, deadline(), notes_of(outcome), all));
  return total_of(all);
}

std::vector<std::span<float>> DeviceUpdater::whole_arenas() {
  std::vector<std::span<float>> arenas{params()};
  for (int i = 0; i < state_count_; ++i) arenas.push_back(state(i));
  return arenas;
}

void DeviceUpdater::take_out(int model, std::span<const float> whole, std::vector<float>& packed) const {
  const Layout& layout = layouts_[static_cast<size_t>(model)];
  packed.assign(static_cast<size_t>(layout.size()), 0);
  for_rows(plan_.layout, pieces_[static_cast<size_t>(model)], layout, [&](int64_t in_whole, int64_t in_part, int64_t n) {
    std::copy_n(whole.data() + in_whole, n, packed.data() + in_part);
  });
}

void DeviceUpdater::put_in(int model, const std::vector<float>& packed, std::span<float> whole) const {
  for_rows(plan_.layout, pieces_[static_cast<size_t>(model)], layouts_[static_cast<size_t>(model)],
           [&](int64_t in_whole, int64_t in_part, int64_t n) {
             std::copy_n(packed.data() + in_part, n, whole.data() + in_whole);
           });
}

// Rows have the same: those of the master's.
Status DeviceUpdater::collect(int me, int64_t step) {
  if (grid_.data_of(me) > 0) return ok();
  Rank& mine = rank(me);
  mine.device().use();
  std::vector<float>& packed = own(me).packed;
  const Moment moment{step, "collect a checkpoint"};
  for (int arena = 0; arena <= state_count_; ++arena) {
    packed.resize(static_cast<size_t>(mine.layout().size()));
    mine.device().copy_to_host(arena == 0 ? mine.params() : mine.state(arena - 1), mine.layout().size(), packed.data());
    TRY(mine.device().wait(watch(me, step, moment.doing)));
    if (me != 0) {
      TRY(own(me).channels.front().send(packed, deadline(), moment));
      continue;
    }
    const std::span<float> whole = whole_arenas()[static_cast<size_t>(arena)];
    put_in(0, packed, whole);
    for (int model = 1; model < grid_.model(); ++model) {
      packed.resize(static_cast<size_t>(layouts_[static_cast<size_t>(model)].size()));
      TRY(own(me).channels[static_cast<size_t>(model - 1)].receive(packed, deadline(), moment));
      put_in(model, packed, whole);
    }
  }
  return ok();
}

Status DeviceUpdater::distribute(int me, int64_t step, int64_t updates) {
  if (me == 0) ahead_ = updates - step;
  Rank& mine = rank(me);
  mine.device().use();
  std::vector<float>& packed = own(me).packed;
  const Moment moment{step, "distribute parameters"};
  for (int arena = 0; arena <= state_count_; ++arena) {
    float* const to = arena == 0 ? mine.params() : mine.state(arena - 1);
    if (me == 0) {
      const std::span<float> whole = whole_arenas()[static_cast<size_t>(arena)];
      for (int model = 1; model < grid_.model(); ++model) {
        take_out(model, whole, packed);
        TRY(own(me).channels[static_cast<size_t>(model - 1)].send(packed, deadline(), moment));
      }
      take_out(0, whole, packed);
    } else if (grid_.data_of(me) == 0) {
      packed.resize(static_cast<size_t>(mine.layout().size()));
      TRY(own(me).channels.front().receive(packed, deadline(), moment));
    }
    if (grid_.data_of(me) == 0) mine.device().copy_to_device(packed.data(), mine.layout().size(), to);
    if (mine.links().column != nullptr) {
      mine.links().column->broadcast(mine.stream(), to, std::array{Range{0, mine.layout().size()}}, 0);
    }
    // Before `packed` is the next arena's, whose copy may itself wait for what was enqueued, without a look.
    TRY(mine.device().wait(watch(me, step, moment.doing)));
  }
  mine.refresh();
  TRY(meeting_.gather(me, step, deadline(), {}, {}));
  TRY(mine.device().wait(watch(me, step, "distribute parameters")));
  return mine.links_status();
}

// The master's counts reach everyone as sums in which the others have none.
Result<int64_t> DeviceUpdater::agree(int me, int64_t step) {
  TRY(const Outcome agreed, add_up(me, step, me == 0 ? counts(step, ahead_) : Outcome{}));
  ahead_ = agreed.correct;
  return agreed.rows;
}

Status DeviceUpdater::wait_for_master(int me, int64_t step) {
  return meeting_.wait_for_first(me, step, kWriteSeconds, plan_.spec.deadline_seconds);
}

}  // namespace dtrain::engine::cuda
