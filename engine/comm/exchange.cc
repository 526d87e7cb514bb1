#include "engine/comm/exchange.h"

#include <algorithm>

#include "engine/norm.h"

namespace dtrain::engine {

Exchange::Exchange(Team& team, Meeting& meeting, const Overlap& overlap)
    : team_(team),
      gang_(team.gang()),
      leaves_(leaf_count(gang_.world())),
      slices_(team.plan().elements, gang_.world(), meeting.several_hosts() ? overlap.bucket_elements : 0),
      meeting_(meeting),
      own_(static_cast<size_t>(gang_.threads())),
      gradients_(static_cast<size_t>(slices_.buckets())) {
  INVARIANT(team.plan().arenas >= most_nodes(gang_.world(), leaves_), "an arena for each node");
  plan_sums();
  if (meeting_.several_hosts()) plan_transfers();
  if (slices_.buckets() > 1) mover_ = std::make_unique<Mover>(team, meeting_.wire(), gradients_, overlap.deadline_seconds);
}

Range Exchange::leaves_of(int participant) const {
  return owned_leaves(participant, gang_.world(), leaves_);
}

std::vector<Node> Exchange::nodes_of(int participant) const {
  return largest_nodes(leaves_of(participant));
}

std::vector<Range> Exchange::slices(int participant) const {
  std::vector<Range> slices;
  for (int bucket = 0; bucket < slices_.buckets(); ++bucket) slices.push_back(slices_.of(participant, bucket));
  return slices;
}

Range Exchange::slice_of_process(int process, int bucket) const {
  const Peer& peer = gang_.peer(process);
  return slices_.of(peer.first, peer.threads, bucket);
}

Range Exchange::slice_of_host(int host, int bucket) const {
  const auto& processes = gang_.hosts()[static_cast<size_t>(host)];
  return {slice_of_process(processes.front(), bucket).begin, slice_of_process(processes.back(), bucket).end};
}

void Exchange::ready(int me, int64_t step, int64_t offset) {
  if (mover_ == nullptr) return;
  if (meeting_.moves(me)) mover_->begin(step);
  const auto written = static_cast<uint32_t>(own(me).begun) + static_cast<uint32_t>(slices_.from(offset));
  // Release: gradients were written before.
  team_.written(me).store(written, std::memory_order_release);
  sum_for_others(me, written_by_all());
}

uint32_t Exchange::written_by_all() const {
  // Acquire: the others' gradients, too, are there.
  uint32_t all = team_.written(team_.first()).load(std::memory_order_acquire);
  for (int p = team_.first() + 1; p < team_.first() + team_.size(); ++p) {
    const uint32_t written = team_.written(p).load(std::memory_order_acquire);
    if (has_come_to(all, written)) all = written;
  }
  return all;
}

void Exchange::sum_for_others(int me, uint32_t until) {
  Own& mine = own(me);
  while (static_cast<uint32_t>(mine.summed) != until) {
    sum_for_others(me, static_cast<int>(mine.summed % static_cast<uint64_t>(slices_.buckets())));
    mine.summed += 1;
    team_.summed(me).set(static_cast<uint32_t>(mine.summed));
  }
}

// The slices of a bucket that other hosts own, shared evenly among the participants of this one.
void Exchange::sum_for_others(int me, int bucket) {
  const Range all = slices_.bucket(bucket), of_host = slice_of_host(gang_.host(), bucket);
  const int64_t first_block = blocks_of(all.begin);
  const int64_t before = blocks_of(of_host.begin) - first_block, after = blocks_of(all.end) - blocks_of(of_host.end);
  const auto cut = [&](int64_t share) { return (before + after) * share / team_.size(); };
  const int64_t share = me - team_.first();
  const auto sum = [&](int64_t from_block, int64_t to_block) {
    const int64_t from = (first_block + from_block) * kBlock;
    const int64_t to = std::min(all.end, (first_block + to_block) * kBlock);
    if (from >= to) return;
    for (const HostNode& node : host_nodes_) {
      std::vector<const float*> sources = node.sources;
      for (const float*& source : sources) source += from;
      node.sum.run(sources, node.out + from, to - from);
    }
  };
  // Counted as if the blocks of this host were not there.
  const int64_t first = cut(share), last = cut(share + 1), gap = blocks_of(of_host.end) - blocks_of(of_host.begin);
  sum(first, std::min(last, before));
  sum(std::max(first, before) + gap, last + gap);
}

Status Exchange::move_gradients(int me, Deadline deadline, const Moment& moment) {
  if (mover_ == nullptr) {
    const BucketTransfers& all = gradients_.front();
    return meeting_.move(me, Op::Gradients, all.out, all.in, deadline, moment);
  }
  if (meeting_.moves(me)) TRY(mover_->finish(moment));
  return team_.barrier(me, deadline, moment);
}

void Exchange::sum(int me, Range part, float* out) const {
  int bucket = 0;
  while (part.begin < slices_.bucket(bucket).begin) ++bucket;
  std::vector<const float*> sources = own(me).sources[static_cast<size_t>(bucket)];
  for (const float*& source : sources) source += part.begin - slices_.of(me, bucket).begin;
  total_->run(sources, out, part.size());
}

Status Exchange::collect(int me, int64_t step, Deadline deadline, std::span<const double> notes,
                         std::span<double> all) {
  const Moment moment{step, "all-reduce"};
  const int set = meeting_.write(me, notes);
  ready(me, step, 0);
  TRY(team_.barrier(me, deadline, moment));
  if (meeting_.several_hosts()) {
    own(me).begun += static_cast<uint64_t>(slices_.buckets());
    sum_for_others(me, static_cast<uint32_t>(own(me).begun));
    TRY(team_.barrier(me, deadline, moment));
    TRY(move_gradients(me, deadline, moment));
    if (!notes.empty()) TRY(meeting_.pass_on(me, set, notes.size(), deadline, moment));
  }
  meeting_.read(set, notes.size(), all);
  return ok();
}

Status Exchange::all_gather_params(int me, int64_t step, Deadline deadline) {
  const Moment moment{step, "parameters"};
  TRY(team_.barrier(me, deadline, moment));
  if (!meeting_.several_hosts()) return ok();
  return meeting_.move(me, Op::Parameters, params_out_, params_in_, deadline, moment);
}

Status Exchange::gather_blocks(int me, int64_t step, Deadline deadline) {
  const Moment moment{step, "norm"};
  TRY(team_.barrier(me, deadline, moment));
  if (!meeting_.several_hosts()) return ok();
  return meeting_.move(me, Op::Blocks, blocks_out_, blocks_in_, deadline, moment);
}

Status Exchange::scatter(int me, int64_t step, Deadline deadline, std::span<float> arena) {
  const Moment moment{step, "scatter"};
  TRY(team_.barrier(me, deadline, moment));
  if (!meeting_.several_hosts()) return ok();
  const std::vector<Transfer> slices = slices_elsewhere(arena);
  return gang_.self() == 0 ? meeting_.move(me, Op::Scatter, slices, {}, deadline, moment)
                           : meeting_.move(me, Op::Scatter, {}, slices, deadline, moment);
}

Status Exchange::gather(int me, int64_t step, Deadline deadline, std::span<float> arena) {
  const Moment moment{step, "gather"};
  TRY(team_.barrier(me, deadline, moment));
  if (!meeting_.several_hosts()) return ok();
  const std::vector<Transfer> slices = slices_elsewhere(arena);
  return gang_.self() == 0 ? meeting_.move(me, Op::Gather, {}, slices, deadline, moment)
                           : meeting_.move(me, Op::Gather, slices, {}, deadline, moment);
}

}  // namespace dtrain::engine
