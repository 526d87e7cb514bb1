#include "engine/comm/exchange.h"

#include <algorithm>

#include "engine/norm.h"

namespace dtrain::engine {
namespace {

Node root_of(int64_t leaves) {
  int level = 0;
  while ((int64_t{1} << level) < leaves) ++level;
  return {level, 0};
}

bool contains(Node node, Node part) {
  return node.leaves().begin <= part.leaves().begin && part.leaves().end <= node.leaves().end;
}

void add(Transfer& transfer, float* arena, Range range) {
  transfer.add(arena + range.begin, static_cast<size_t>(range.size()) * sizeof(float));
}

}  // namespace

Exchange::Exchange(Team& team)
    : team_(team),
      gang_(team.gang()),
      leaves_(leaf_count(gang_.world())),
      wire_(team),
      own_(static_cast<size_t>(gang_.threads())) {
  INVARIANT(team.plan().arenas >= most_nodes(gang_.world(), leaves_), "an arena for each node");
  plan_sums();
  if (several_hosts()) plan_transfers();
}

Range Exchange::leaves_of(int participant) const {
  return owned_leaves(participant, gang_.world(), leaves_);
}

std::vector<Node> Exchange::nodes_of(int participant) const {
  return largest_nodes(leaves_of(participant));
}

Range Exchange::slice(int participant) const {
  const int64_t elements = team_.plan().elements, blocks = blocks_of(elements);
  const auto at = [&](int64_t p) {
    return std::min(elements, p * blocks / gang_.world() * kBlockElements);
  };
  return {at(participant), at(participant + 1)};
}

Range Exchange::slice_of_process(int process) const {
  const Peer& peer = gang_.peer(process);
  return {slice(peer.first).begin, slice(peer.first + peer.threads - 1).end};
}

// The process of `host` that sends to and hears from `process` of another host.
int Exchange::partner_on(int host, int process) const {
  const auto& own = gang_.hosts()[static_cast<size_t>(gang_.peer(process).host)];
  const auto& there = gang_.hosts()[static_cast<size_t>(host)];
  const auto position = static_cast<size_t>(std::ranges::find(own, process) - own.begin());
  return there[position % there.size()];
}

void Exchange::plan_sums() {
  const Range mine = slice_of_process(gang_.self());
  std::vector<Node> parts;
  // Where each part lies: an arena as a whole, or of other hosts the slice of this process.
  std::vector<std::pair<const float*, Range>> places;
  std::vector<std::vector<Node>> of_hosts;
  size_t others = 0;
  for (const auto& processes : gang_.hosts()) {
    const Peer &front = gang_.peer(processes.front()), &back = gang_.peer(processes.back());
    of_hosts.push_back(largest_nodes(
        {leaves_of(front.first).begin, leaves_of(back.first + back.threads - 1).end}));
    if (front.host != gang_.host()) others += of_hosts.back().size();
  }
  const auto length = static_cast<size_t>(mine.size());
  received_ = std::make_unique_for_overwrite<float[]>(others * length);
  float* next = received_.get();
  for (int host = 0; host < static_cast<int>(of_hosts.size()); ++host) {
    if (host != gang_.host()) {
      Transfer in{.process = partner_on(host, gang_.self())};
      for (const Node node : of_hosts[static_cast<size_t>(host)]) {
        parts.push_back(node);
        places.emplace_back(next, mine);
        in.add(next, length * sizeof(float));
        next += length;
      }
      gradients_in_.push_back(std::move(in));
      continue;
    }
    for (int p = team_.first(); p < team_.first() + team_.size(); ++p) {
      const std::vector<Node> nodes = nodes_of(p);
      for (size_t a = 0; a < nodes.size(); ++a) {
        parts.push_back(nodes[a]);
        places.emplace_back(team_.gradients(p, static_cast<int>(a)).data(), Range{});
      }
    }
  }
  for (int thread = 0; thread < gang_.threads(); ++thread) {
    const int p = gang_.first() + thread;
    for (const auto& [place, from] : places) {
      own(p).sources.push_back(place + (slice(p).begin - from.begin));
    }
  }
  if (several_hosts()) {
    for (const Node node : of_hosts[static_cast<size_t>(gang_.host())]) {
      std::vector<Node> within;
      std::vector<const float*> sources;
      for (size_t i = 0; i < parts.size(); ++i) {
        if (!contains(node, parts[i])) continue;
        within.push_back(parts[i]);
        sources.push_back(places[i].first);
      }
      float* const out = const_cast<float*>(sources.front());  // an arena of this team
      host_nodes_.push_back({TreeSum(node, within), std::move(sources), out});
    }
  }
  total_ = std::make_unique<TreeSum>(root_of(leaves_), std::move(parts));
}

void Exchange::plan_transfers() {
  float* const params = team_.params().data();
  const auto block_range = [&](int host) {
    const auto& processes = gang_.hosts()[static_cast<size_t>(host)];
    return Range{blocks_of(slice_of_process(processes.front()).begin),
                 blocks_of(slice_of_process(processes.back()).end)};
  };
  const auto blocks = [&](Transfer& transfer, int host) {
    const Range range = block_range(host);
    transfer.add(team_.blocks().data() + range.begin,
                 static_cast<size_t>(range.size()) * sizeof(double));
  };
  for (int host = 0; host < static_cast<int>(gang_.hosts().size()); ++host) {
    if (host == gang_.host()) continue;
    const auto& processes = gang_.hosts()[static_cast<size_t>(host)];
    // What this process owns comes from, and as parameters goes to, its partner there.
    params_out_.push_back({.process = partner_on(host, gang_.self())});
    add(params_out_.back(), params, slice_of_process(gang_.self()));
    for (const int process : processes) {
      if (partner_on(gang_.host(), process) != gang_.self()) continue;
      gradients_out_.push_back({.process = process});
      for (const HostNode& node : host_nodes_) {
        add(gradients_out_.back(), node.out, slice_of_process(process));
      }
      params_in_.push_back({.process = process});
      add(params_in_.back(), params, slice_of_process(process));
    }
    if (gang_.self() != gang_.hosts()[static_cast<size_t>(gang_.host())].front()) continue;
    blocks_out_.push_back({.process = processes.front()});
    blocks(blocks_out_.back(), gang_.host());
    blocks_in_.push_back({.process = processes.front()});
    blocks(blocks_in_.back(), host);
  }
}

// The slices that other hosts own, shared evenly among the participants of this one.
void Exchange::sum_for_others(int me) {
  const int64_t elements = team_.plan().elements;
  const int64_t begin = slice(team_.first()).begin;
  const int64_t end = slice(team_.first() + team_.size() - 1).end;
  const int64_t before = blocks_of(begin), after = blocks_of(elements) - blocks_of(end);
  const auto cut = [&](int64_t share) { return (before + after) * share / team_.size(); };
  const int64_t share = me - team_.first();
  const auto sum = [&](int64_t first_block, int64_t last_block) {
    const int64_t from = first_block * kBlockElements;
    const int64_t to = std::min(elements, last_block * kBlockElements);
    if (from >= to) return;
    for (const HostNode& node : host_nodes_) {
      std::vector<const float*> sources = node.sources;
      for (const float*& source : sources) source += from;
      node.sum.run(sources, node.out + from, to - from);
    }
  };
  // Counted as if the blocks of this host were not there.
  const int64_t first = cut(share), last = cut(share + 1), gap = blocks_of(end) - blocks_of(begin);
  sum(first, std::min(last, before));
  sum(std::max(first, before) + gap, last + gap);
}

Status Exchange::move(int me, Op op, const std::vector<Transfer>& sends,
                      const std::vector<Transfer>& receives, Deadline deadline,
                      const Moment& moment) {
  if (moves(me)) {
    if (auto moved = wire_.run(op, sends, receives, deadline, moment); !moved.ok()) {
      return team_.fail(std::move(moved).error());
    }
  }
  // Who waits here waits for those that move, who wait a little longer than the deadline.
  return team_.barrier(me, deadline.later().later(), moment);
}

Status Exchange::pass_notes(int me, int set, size_t count, Deadline deadline,
                            const Moment& moment) {
  std::vector<Transfer> sends, receives;
  if (moves(me) && gang_.self() == gang_.hosts()[static_cast<size_t>(gang_.host())].front()) {
    const auto rows = [&](int host) {
      Transfer transfer{.process = gang_.hosts()[static_cast<size_t>(host)].front()};
      for (int p = 0; p < gang_.world(); ++p) {
        if (gang_.participant(p).host != host) continue;
        transfer.add(team_.notes(set, p).data(), count * sizeof(double));
      }
      return transfer;
    };
    for (int host = 0; host < static_cast<int>(gang_.hosts().size()); ++host) {
      if (host == gang_.host()) continue;
      receives.push_back(rows(host));
      sends.push_back(rows(gang_.host()));
      sends.back().process = receives.back().process;
    }
  }
  return move(me, Op::Small, sends, receives, deadline, moment);
}

std::span<float> Exchange::summed(int me) const {
  const Range range = slice(me);
  return team_.gradients(me).subspan(static_cast<size_t>(range.begin),
                                     static_cast<size_t>(range.size()));
}

Status Exchange::reduce_scatter(int me, int64_t step, Deadline deadline,
                                std::span<const double> notes, std::span<double> all) {
  TRY(collect(me, step, deadline, notes, all));
  sum(me, slice(me), summed(me).data());
  return ok();
}

void Exchange::sum(int me, Range part, float* out) const {
  std::vector<const float*> sources = own(me).sources;
  for (const float*& source : sources) source += part.begin - slice(me).begin;
  total_->run(sources, out, part.size());
}

Status Exchange::collect(int me, int64_t step, Deadline deadline, std::span<const double> notes,
                         std::span<double> all) {
  const Moment moment{step, "all-reduce"};
  INVARIANT(notes.size() <= kMostNotes, "few notes");
  const int set = static_cast<int>(own(me).notes_sent++ % 2);
  std::ranges::copy(notes, team_.notes(set, me).begin());
  TRY(team_.barrier(me, deadline, moment));
  if (several_hosts()) {
    sum_for_others(me);
    TRY(team_.barrier(me, deadline, moment));
    TRY(move(me, Op::Gradients, gradients_out_, gradients_in_, deadline, moment));
    if (!notes.empty()) TRY(pass_notes(me, set, notes.size(), deadline, moment));
  }
  // The other set is written next; this one again only after everyone has been at another barrier.
  for (int p = 0; p < gang_.world() && !all.empty(); ++p) {
    std::ranges::copy(team_.notes(set, p).first(notes.size()),
                      all.begin() + static_cast<int64_t>(notes.size()) * p);
  }
  return ok();
}

Status Exchange::gather_notes(int me, int64_t step, Deadline deadline,
                              std::span<const double> notes, std::span<double> all) {
  const Moment moment{step, "values"};
  INVARIANT(notes.size() <= kMostNotes, "few notes");
  const int set = static_cast<int>(own(me).notes_sent++ % 2);
  std::ranges::copy(notes, team_.notes(set, me).begin());
  TRY(team_.barrier(me, deadline, moment));
  if (several_hosts()) TRY(pass_notes(me, set, notes.size(), deadline, moment));
  for (int p = 0; p < gang_.world(); ++p) {
    std::ranges::copy(team_.notes(set, p).first(notes.size()),
                      all.begin() + static_cast<int64_t>(notes.size()) * p);
  }
  return ok();
}

Status Exchange::all_gather_params(int me, int64_t step, Deadline deadline) {
  const Moment moment{step, "parameters"};
  TRY(team_.barrier(me, deadline, moment));
  if (!several_hosts()) return ok();
  return move(me, Op::Parameters, params_out_, params_in_, deadline, moment);
}

Status Exchange::gather_blocks(int me, int64_t step, Deadline deadline) {
  const Moment moment{step, "norm"};
  TRY(team_.barrier(me, deadline, moment));
  if (!several_hosts()) return ok();
  return move(me, Op::Blocks, blocks_out_, blocks_in_, deadline, moment);
}

Status Exchange::broadcast(int me, int64_t step, Deadline deadline, std::span<float> arena) {
  const Moment moment{step, "broadcast"};
  TRY(team_.barrier(me, deadline, moment));
  if (!several_hosts()) return ok();
  std::vector<Transfer> sends, receives;
  if (gang_.self() == 0) {
    for (size_t host = 1; host < gang_.hosts().size(); ++host) {
      sends.push_back({.process = gang_.hosts()[host].front()});
      sends.back().add(arena.data(), arena.size_bytes());
    }
  } else if (gang_.self() == gang_.hosts()[static_cast<size_t>(gang_.host())].front()) {
    receives.push_back({.process = 0});
    receives.back().add(arena.data(), arena.size_bytes());
  }
  return move(me, Op::Broadcast, sends, receives, deadline, moment);
}

Status Exchange::gather(int me, int64_t step, Deadline deadline, std::span<float> arena) {
  const Moment moment{step, "gather"};
  TRY(team_.barrier(me, deadline, moment));
  if (!several_hosts()) return ok();
  std::vector<Transfer> sends, receives;
  if (gang_.self() == 0) {
    for (int process = 0; process < gang_.size(); ++process) {
      if (gang_.peer(process).host == gang_.host()) continue;
      receives.push_back({.process = process});
      add(receives.back(), arena.data(), slice_of_process(process));
    }
  } else if (gang_.host() != gang_.peer(0).host) {
    sends.push_back({.process = 0});
    add(sends.back(), arena.data(), slice_of_process(gang_.self()));
  }
  return move(me, Op::Gather, sends, receives, deadline, moment);
}

}  // namespace dtrain::engine
