#include "engine/cuda/device_all_reduce.h"

#include <array>
#include <cstring>
#include <thread>

#include "engine/strategies/notes.h"

namespace dtrain::engine::cuda {

namespace {

// What participants tell each other before they meet from GPU to GPU, as bits in doubles.
struct Introduction {
  std::array<char, 16> uuid = {};
  Communicator::Id id = {};  // of participant 0
};
constexpr size_t kIntroduction = sizeof(Introduction) / sizeof(double);

Introduction introduction_of(std::span<const double> all, int participant) {
  Introduction introduction;
  std::memcpy(static_cast<void*>(&introduction), all.data() + static_cast<size_t>(participant) * kIntroduction, sizeof introduction);
  return introduction;
}

}  // namespace

Result<std::unique_ptr<DeviceAllReduce>> DeviceAllReduce::open(const RunPlan& plan, std::unique_ptr<Gang> gang) {
  // The team is for notes: its arenas are as small as they can be.
  const TeamPlan team_plan{.elements = Layout::kAlignment, .states = 0,
                           .arenas = most_nodes(gang->world(), leaf_count(gang->world()))};
  TRY(auto team, Team::open(*gang, team_plan, Deadline::after(plan.spec.deadline_seconds)));
  std::unique_ptr<DeviceAllReduce> made(new DeviceAllReduce(plan, std::move(gang), std::move(team)));
  std::vector<std::thread> threads;
  std::vector<Status> statuses(static_cast<size_t>(plan.threads), ok());
  for (int thread = 0; thread < plan.threads; ++thread) {
    threads.emplace_back([&, thread] {
      Status status = made->start(made->first() + thread);
      if (!status.ok()) statuses[static_cast<size_t>(thread)] = made->fail(status.error());
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (Status& status : statuses) TRY(std::move(status));
  return made;
}

DeviceAllReduce::DeviceAllReduce(const RunPlan& plan, std::unique_ptr<Gang> gang, std::unique_ptr<Team> team)
    : plan_(plan),
      gang_(std::move(gang)),
      team_(std::move(team)),
      exchange_(std::make_unique<Exchange>(*team_)),
      ranks_(static_cast<size_t>(plan.threads)) {
  if (!plan.place.is_master()) return;
  params_ = Buffer<float>(plan.layout.size());
  for (int i = 0; i < OptimizerKernel(plan.spec.optimizer, plan.layout).states(); ++i) {
    states_.emplace_back(plan.layout.size());
  }
}

Status DeviceAllReduce::start(int me) {
  auto& mine = ranks_[static_cast<size_t>(me - first())];
  TRY(mine, Rank::open(plan_, me - first()));
  if (gang_->world() == 1) return ok();
  Introduction own;
  std::memcpy(own.uuid.data(), mine->device().uuid().data(), own.uuid.size());
  if (me == 0) {
    TRY(own.id, Communicator::make_id());
  }
  std::array<double, kIntroduction> told;
  std::memcpy(told.data(), &own, sizeof own);
  std::vector<double> all(static_cast<size_t>(gang_->world()) * kIntroduction);
  TRY(exchange_->gather_notes(me, 0, deadline(), told, all));
  // NCCL would only say that something is wrong, on the host where it is.
  for (int other = 0; other < gang_->world(); ++other) {
    if (other == me || introduction_of(all, other).uuid != own.uuid) continue;
    return Error{Code::InvalidArgument,
                 fmt::format("{} and {} have the same GPU, {}", gang_->participant_name(std::min(me, other)),
                             gang_->participant_name(std::max(me, other)), mine->device().described()),
                 "a GPU for each: gpus: 1 in resources, and CUDA_VISIBLE_DEVICES left as it is"};
  }
  TRY(auto communicator, Communicator::open(introduction_of(all, 0).id, me, gang_->world(), deadline()));
  mine->connect(std::move(communicator));
  return ok();
}

Result<Outcome> DeviceAllReduce::finish_step(int me, const Update& update, const Outcome&) {
  Rank& mine = rank(me);
  Result<Outcome> outcome = finish_step(me, mine, update);
  // What is on its way would keep the GPU waiting for ever.
  if (!outcome.ok() && mine.communicator() != nullptr) mine.communicator()->abort();
  return outcome;
}

Result<Outcome> DeviceAllReduce::finish_step(int me, Rank& mine, const Update& update) {
  mine.device().use();
  Communicator* others = mine.communicator();
  if (others != nullptr) {
    others->all_reduce(mine.stream(), mine.gradients(), plan_.layout.size());
    static_assert(sizeof(Totals) == 3 * sizeof(double));
    others->all_reduce(mine.stream(), &mine.context().totals()->loss, 3);
  }
  mine.update(update);
  if (others == nullptr) return mine.finish_step(update.step, {});
  TRY(exchange_->gather_notes(me, update.step, deadline(), {}, {}));
  const Moment moment{update.step, "all-reduce"};
  const Deadline all_are_here = deadline();
  return mine.finish_step(update.step, [&]() -> Status {
    TRY(team_->look(moment));
    TRY(others->status());
    if (!all_are_here.expired()) return ok();
    return moment.during({Code::DeadlineExceeded, fmt::format("GPUs did not answer for {} s", all_are_here.seconds()),
                          "NCCL_DEBUG=INFO says what NCCL waits for"});
  });
}

Result<Outcome> DeviceAllReduce::add_up(int me, int64_t step, const Outcome& own) {
  std::vector<double> all(static_cast<size_t>(gang_->world()) * kNotes);
  TRY(exchange_->gather_notes(me, step, deadline(), notes_of(own), all));
  return total_of(all, step);
}

// All have the same: the master's own.
Status DeviceAllReduce::collect(int me, int64_t) {
  if (me != 0) return ok();
  Rank& mine = rank(me);
  mine.device().use();
  mine.device().copy_to_host(mine.params(), plan_.layout.size(), params_.data());
  for (size_t i = 0; i < states_.size(); ++i) {
    mine.device().copy_to_host(mine.state(static_cast<int>(i)), plan_.layout.size(), states_[i].data());
  }
  return mine.device().wait();
}

Status DeviceAllReduce::distribute(int me, int64_t step) {
  Rank& mine = rank(me);
  mine.device().use();
  const int states = OptimizerKernel(plan_.spec.optimizer, plan_.layout).states();
  const auto pass = [&](float* arena, const Buffer<float>* from) {
    if (me == 0) mine.device().copy_to_device(from->data(), plan_.layout.size(), arena);
    if (mine.communicator() != nullptr) mine.communicator()->broadcast(mine.stream(), arena, plan_.layout.size(), 0);
  };
  pass(mine.params(), &params_);
  for (int i = 0; i < states; ++i) pass(mine.state(i), me == 0 ? &states_[static_cast<size_t>(i)] : nullptr);
  mine.refresh();
  TRY(exchange_->gather_notes(me, step, deadline(), {}, {}));
  const Deadline until = deadline();
  return mine.device().wait([&]() -> Status {
    TRY(team_->look({step, "broadcast"}));
    if (!until.expired()) return ok();
    return Error{Code::DeadlineExceeded, fmt::format("GPUs did not answer for {} s", until.seconds()), ""};
  });
}

// The master's count reaches everyone as a sum in which the others have none.
Result<int64_t> DeviceAllReduce::agree(int me, int64_t step) {
  TRY(const Outcome agreed, add_up(me, step, {.loss = 0, .rows = me == 0 ? step : 0}));
  return agreed.rows;
}

Status DeviceAllReduce::wait_for_master(int me, int64_t step) {
  return exchange_->gather_notes(me, step, Deadline::after(kWriteSeconds), {}, {});
}

}  // namespace dtrain::engine::cuda
