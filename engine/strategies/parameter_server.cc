#include "engine/strategies/parameter_server.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "engine/comm/rendezvous.h"
#include "engine/environment.h"
#include "engine/kernels/kernels.h"
#include "engine/norm.h"
#include "engine/optimizer.h"
#include "engine/strategies/not_finite.h"
#include "engine/strategies/notes.h"

namespace dtrain::engine {

namespace {

int64_t world_of(const RunPlan& plan) {
  return plan.deals_parts() ? plan.threads : static_cast<int64_t>(plan.place.workers.size()) * plan.threads;
}

// Those of a part need not give the same bits for any number of threads: the fewest, and so the longest, do.
int64_t leaves_of(const RunPlan& plan) {
  const int64_t world = world_of(plan);
  return plan.deals_parts() ? static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(world))) : leaf_count(world);
}

}  // namespace

Result<std::unique_ptr<ParameterServer>> ParameterServer::open(const RunPlan& plan) {
  const Deadline deadline = Deadline::after(plan.spec.deadline_seconds);
  Place alone;
  alone.workers = {""};
  alone.key = plan.place.key;
  TRY(auto gang, meet({.place = alone, .threads = plan.threads}, deadline));
  const int64_t world = world_of(plan);
  const TeamPlan team_plan{.elements = plan.layout.size(),
                           .states = OptimizerKernel(plan.spec.optimizer, plan.layout).states(),
                           .arenas = most_nodes(world, leaves_of(plan))};
  TRY(auto team, Team::open(*gang, team_plan, deadline));
  ServerClientConfig config{.rank = plan.place.index,
                            .threads = plan.threads,
                            .servers = plan.place.ps,
                            .workers = plan.place.workers,
                            .experiment = experiment_from_environment(),
                            .data = plan.data,
                            .attempt = std::strtoull(variable("DTRAIN_ATTEMPT").c_str(), nullptr, 10),
                            .spec = plan.spec};
  if (plan.spec.strategy.data_path == DataPath::Grpc) {
    TRY(config.through, plan.tunnels.open_entrance(plan.place.ps));
  }
  TRY(auto client, ServerClient::join(config, plan.layout));
  return std::unique_ptr<ParameterServer>(
      new ParameterServer(plan, std::move(gang), std::move(team), std::move(client)));
}

ParameterServer::ParameterServer(const RunPlan& plan, std::unique_ptr<Gang> gang, std::unique_ptr<Team> team,
                                 std::unique_ptr<ServerClient> client)
    : plan_(plan),
      world_(static_cast<int>(world_of(plan))),
      leaves_(leaves_of(plan)),
      worker_nodes_(largest_nodes({owned_leaves(in_world(first()), world_, leaves_).begin,
                                   owned_leaves(in_world(first() + plan.threads - 1), world_, leaves_).end})),
      gang_(std::move(gang)),
      team_(std::move(team)),
      meeting_(*team_),
      client_(std::move(client)) {
  for (const Node& node : worker_nodes_) {
    std::vector<Node> parts;
    std::vector<const float*> sources;
    for (int me = first(); me < first() + plan_.threads; ++me) {
      const std::vector<Node> own = nodes(me);
      for (size_t i = 0; i < own.size(); ++i) {
        if (own[i].leaves().begin < node.leaves().begin || own[i].leaves().end > node.leaves().end) continue;
        parts.push_back(own[i]);
        sources.push_back(gradients(me, i));
      }
    }
    sums_.emplace_back(node, parts);
    sum_results_.push_back(const_cast<float*>(sources.front()));
    sum_sources_.push_back(std::move(sources));
  }
  if (plan_.spec.strategy.apply_every > 1) gathered_ = Buffer<float>(plan_.layout.size());
}

Range ParameterServer::evaluated(int me, int64_t samples) const {
  if (!plan_.place.is_master()) return {};
  return {samples * local(me) / plan_.threads, samples * (local(me) + 1) / plan_.threads};
}

// The one that talks may wait for a server as long as data moves, or the others live.
Status ParameterServer::meet_threads(int me, int64_t step) {
  return team_->barrier(local(me), Deadline::after(kEverSeconds), {step, "waiting for the threads of this worker"});
}

Result<Outcome> ParameterServer::add_up(int me, int64_t step, const Outcome& own) {
  std::vector<double> all(static_cast<size_t>(plan_.threads) * kNotes);
  TRY(meeting_.gather(local(me), step, deadline(), notes_of(own), all));
  return total_of(all);
}

ArenaSizes ParameterServer::sizes() const {
  const TeamPlan& plan = team_->plan();
  const auto nodes = static_cast<int64_t>(this->nodes(first()).size());
  return {plan.elements, plan.elements * nodes * plan_.threads, plan.elements * plan.states};
}

Result<Outcome> ParameterServer::finish_step(int me, const Update& update, const Outcome& own) {
  TRY(const Outcome outcome, add_up(me, update.step, own));
  TRY(check_loss(outcome.loss, update.step));
  if (talks(me)) {
    if (Status pushed = push(update, outcome); !pushed.ok()) {
      return std::move(pushed.error()).with_context(fmt::format("step {}", update.step + 1));
    }
  }
  const bool tells = talks(me) && plan_.place.is_master();
  const Outcome told = tells ? news() : outcome;
  TRY(meet_threads(me, update.step));
  return told;
}

// With what this worker has not pushed yet.
Outcome ParameterServer::news() {
  Outcome all = client_->learned();
  all += gathered_outcome_;
  const Outcome before = std::exchange(told_, all);
  return {.loss = all.loss - before.loss, .rows = all.rows - before.rows};
}

// No thread pushes again before all of this worker's have met.
int64_t ParameterServer::steps_seen(int, int64_t steps) const {
  if (!is_sync()) return steps_of_parts();
  return plan_.spec.strategy.backup > 0 ? std::clamp(steps_pushed(), steps, plan_.steps) : steps;
}

// sync: of which the servers have this worker's gradients, or did without.
int64_t ParameterServer::steps_pushed() const {
  return static_cast<int64_t>(client_->begun_at()) + static_cast<int64_t>(client_->pushes());
}

// The one that this worker makes next, of all the training's in order.
int64_t ParameterServer::part() const {
  const auto begun_at = static_cast<int64_t>(client_->begun_at()), deal = static_cast<int64_t>(client_->deal());
  return begun_at * workers() + deal * plan_.spec.strategy.apply_every + gathered_parts_;
}

int64_t ParameterServer::steps_of_parts() const { return std::min(part() / workers(), plan_.steps); }

Range ParameterServer::dealt(int, int64_t batch) const {
  if (is_sync()) return {0, batch};
  const int64_t of_batch = part() % workers();
  return {batch * of_batch / workers(), batch * (of_batch + 1) / workers()};
}

Result<Outcome> ParameterServer::settle(int me, int64_t step) {
  if (is_sync() || !plan_.place.is_master()) return Outcome{};
  TRY(meet_threads(me, step));  // all have asked steps_seen()
  Outcome told;
  if (talks(me)) {
    float* const params = team_->params().data();
    TRY(steps_of_parts() < plan_.steps ? client_->pull(params) : client_->pull_last(params));
    told = news();
  }
  TRY(meet_threads(me, step));
  return told;
}

int64_t ParameterServer::updates(int64_t) const { return static_cast<int64_t>(client_->updates()); }

void ParameterServer::sum_threads() {
  for (size_t i = 0; i < sums_.size(); ++i) {
    sums_[i].run(sum_sources_[i], sum_results_[i], plan_.layout.size());
  }
}

Status ParameterServer::push(const Update& update, const Outcome& outcome) {
  sum_threads();
  if (!is_sync()) return push_gradient(update, outcome);
  std::vector<NodeSums> nodes;
  for (size_t i = 0; i < worker_nodes_.size(); ++i) {
    const Range range = worker_nodes_[i].leaves();
    nodes.push_back({static_cast<int>(range.begin), static_cast<int>(range.end), sum_results_[i]});
  }
  // What is saved is of one step: without the slowest, servers might do the next one while the master reads.
  const bool follows_a_save = update.step % plan_.checkpoint_every == 0;
  return client_->push_step(nodes, outcome, update.learning_rate, team_->params().data(), follows_a_save);
}

// One gradient: the mean over what this worker has seen since it pushed last.
Status ParameterServer::push_gradient(const Update& update, const Outcome& outcome) {
  const Kernels<float>& k = kernels<float>();
  const int64_t size = plan_.layout.size();
  float* sum = sum_results_.front();
  for (size_t i = 1; i < sum_results_.size(); ++i) k.add_to(size, sum_results_[i], sum);
  gathered_outcome_ += outcome;
  ++gathered_parts_;
  if (gathered_.size() > 0) {
    if (gathered_parts_ == 1) std::copy_n(sum, size, gathered_.data());
    if (gathered_parts_ > 1) k.add_to(size, sum, gathered_.data());
    sum = gathered_.data();
    if (gathered_parts_ < plan_.spec.strategy.apply_every && steps_of_parts() < plan_.steps) return ok();
  }
  // The rest of an epoch may have nothing for this worker. It pushes all the same, for others wait for it.
  double scale = gathered_outcome_.rows > 0 ? 1 / static_cast<double>(gathered_outcome_.rows) : 0;
  // A server sees its part of a gradient alone.
  if (plan_.spec.clip_norm != 0) {
    squares_.resize(static_cast<size_t>(blocks_of(size)));
    block_squares({0, size}, sum, squares_.data());
    scale = clipped_scale(sum_of(squares_), scale, plan_.spec.clip_norm);
  }
  const Outcome gathered = std::exchange(gathered_outcome_, {});
  gathered_parts_ = 0;
  return client_->push(sum, update.learning_rate, scale, team_->params().data(), gathered);
}

Result<int64_t> ParameterServer::agree(int, int64_t) {
  // Of its threads the first alone was told.
  if (plan_.place.is_master()) return static_cast<int64_t>(client_->begun_at());
  // All begin where the master did; who comes again goes on with what is next for it.
  return is_sync() ? steps_pushed() : steps_of_parts();
}

Status ParameterServer::distribute(int me, int64_t step, int64_t updates) {
  if (talks(me)) {
    if (plan_.place.is_master()) {
      std::vector<const float*> arenas{team_->params().data()};
      for (int i = 0; i < team_->plan().states; ++i) arenas.push_back(team_->state(i).data());
      TRY(client_->fill(arenas, static_cast<uint64_t>(updates), static_cast<uint64_t>(step)));
    } else {
      TRY(client_->pull(team_->params().data()));
    }
  }
  return meet_threads(me, step);
}

Status ParameterServer::collect(int me, int64_t step) {
  if (talks(me) && plan_.place.is_master()) {
    for (int i = 0; i <= team_->plan().states; ++i) {
      TRY(client_->read(i, i == 0 ? team_->params().data() : team_->state(i - 1).data()));
    }
    if (is_sync()) TRY(client_->let_go());
  }
  return meet_threads(me, step);
}

Status ParameterServer::wait_for_master(int me, int64_t step) {
  return team_->barrier(local(me), Deadline::after(kWriteSeconds), {step, "writing a checkpoint"});
}

Status ParameterServer::finish(int me) {
  if (!talks(me)) return ok();
  TRY(client_->leave());
  return plan_.place.is_master() ? client_->finish() : ok();
}

}  // namespace dtrain::engine
