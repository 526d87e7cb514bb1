// What an Exchange makes once, at its start: who sums what, and what goes to whom.
#include <algorithm>

#include "engine/comm/exchange.h"
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

}  // namespace

// The process of `host` that sends to and hears from `process` of another host.
int Exchange::partner_on(int host, int process) const {
  const auto& own = gang_.hosts()[static_cast<size_t>(gang_.peer(process).host)];
  const auto& there = gang_.hosts()[static_cast<size_t>(host)];
  const auto position = static_cast<size_t>(std::ranges::find(own, process) - own.begin());
  return there[position % there.size()];
}

void Exchange::plan_sums() {
  std::vector<Part> parts;
  for (int host = 0; host < static_cast<int>(gang_.hosts().size()); ++host) {
    if (host != gang_.host()) {
      for (const Node node : nodes_of_host(host)) parts.push_back({node, host, nullptr});
      continue;
    }
    for (int p = team_.first(); p < team_.first() + team_.size(); ++p) {
      const std::vector<Node> nodes = nodes_of(p);
      for (size_t a = 0; a < nodes.size(); ++a) {
        parts.push_back({nodes[a], host, team_.gradients(p, static_cast<int>(a)).data()});
      }
    }
  }
  plan_sources(parts);
  if (meeting_.several_hosts()) plan_host_nodes(parts);
  std::vector<Node> nodes;
  for (const Part& part : parts) nodes.push_back(part.node);
  total_ = std::make_unique<TreeSum>(root_of(leaves_), std::move(nodes));
}

// What all participants of a host sum together.
std::vector<Node> Exchange::nodes_of_host(int host) const {
  const auto& processes = gang_.hosts()[static_cast<size_t>(host)];
  const Peer &front = gang_.peer(processes.front()), &back = gang_.peer(processes.back());
  return largest_nodes({leaves_of(front.first).begin, leaves_of(back.first + back.threads - 1).end});
}

// Where the parts of each slice of this process lie: in arenas, or, of other hosts, where they are received.
void Exchange::plan_sources(const std::vector<Part>& parts) {
  int64_t owned = 0;
  for (int bucket = 0; bucket < slices_.buckets(); ++bucket) owned += slice_of_process(gang_.self(), bucket).size();
  const auto others = std::ranges::count(parts, nullptr, &Part::arena);
  received_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(others * owned));
  float* next = received_.get();
  for (int bucket = 0; bucket < slices_.buckets(); ++bucket) {
    const Range mine = slice_of_process(gang_.self(), bucket);
    std::vector<Transfer>& in = gradients_[static_cast<size_t>(bucket)].in;
    std::vector<const float*> first;  // of the slice of this process
    for (const Part& part : parts) {
      if (part.arena != nullptr) {
        first.push_back(part.arena + mine.begin);
        continue;
      }
      const int partner = partner_on(part.host, gang_.self());
      if (in.empty() || in.back().process != partner) in.push_back({.process = partner});
      in.back().add(next, static_cast<size_t>(mine.size()) * sizeof(float));
      first.push_back(next);
      next += mine.size();
    }
    for (int thread = 0; thread < gang_.threads(); ++thread) {
      const int p = gang_.first() + thread;
      std::vector<const float*>& sources = own(p).sources.emplace_back(first);
      for (const float*& source : sources) source += slices_.of(p, bucket).begin - mine.begin;
    }
  }
}

void Exchange::plan_host_nodes(const std::vector<Part>& parts) {
  for (const Node node : nodes_of_host(gang_.host())) {
    std::vector<Node> within;
    std::vector<const float*> sources;
    for (const Part& part : parts) {
      if (!contains(node, part.node)) continue;
      within.push_back(part.node);
      sources.push_back(part.arena);
    }
    float* const out = const_cast<float*>(sources.front());  // an arena of this team
    host_nodes_.push_back({TreeSum(node, within), std::move(sources), out});
  }
}

void Exchange::plan_transfers() {
  float* const params = team_.params().data();
  for (int host = 0; host < static_cast<int>(gang_.hosts().size()); ++host) {
    if (host == gang_.host()) continue;
    // What this process owns comes from, and as parameters goes to, its partner there.
    params_out_.push_back({.process = partner_on(host, gang_.self())});
    add(params_out_.back(), params, gang_.self());
    for (const int process : gang_.hosts()[static_cast<size_t>(host)]) {
      if (partner_on(gang_.host(), process) != gang_.self()) continue;
      for (int bucket = 0; bucket < slices_.buckets(); ++bucket) {
        std::vector<Transfer>& out = gradients_[static_cast<size_t>(bucket)].out;
        out.push_back({.process = process});
        for (const HostNode& node : host_nodes_) add(out.back(), node.out, slice_of_process(process, bucket));
      }
      params_in_.push_back({.process = process});
      add(params_in_.back(), params, process);
    }
    if (gang_.self() != gang_.hosts()[static_cast<size_t>(gang_.host())].front()) continue;
    const int front = gang_.hosts()[static_cast<size_t>(host)].front();
    blocks_out_.push_back({.process = front});
    add_blocks(blocks_out_.back(), gang_.host());
    blocks_in_.push_back({.process = front});
    add_blocks(blocks_in_.back(), host);
  }
}

std::vector<Transfer> Exchange::slices_elsewhere(std::span<float> arena) const {
  std::vector<Transfer> transfers;
  for (int process = 0; process < gang_.size(); ++process) {
    if (gang_.peer(process).host == 0 || (gang_.self() != 0 && gang_.self() != process)) continue;
    transfers.push_back({.process = gang_.self() == 0 ? process : 0});
    add(transfers.back(), arena.data(), process);
  }
  return transfers;
}

// All slices of a process.
void Exchange::add(Transfer& transfer, float* arena, int process) const {
  for (int bucket = 0; bucket < slices_.buckets(); ++bucket) {
    add(transfer, arena, slice_of_process(process, bucket));
  }
}

void Exchange::add(Transfer& transfer, float* arena, Range range) {
  transfer.add(arena + range.begin, static_cast<size_t>(range.size()) * sizeof(float));
}

void Exchange::add_blocks(Transfer& transfer, int host) const {
  for (int bucket = 0; bucket < slices_.buckets(); ++bucket) {
    const Range range = slice_of_host(host, bucket);
    const int64_t begin = blocks_of(range.begin);
    transfer.add(team_.blocks().data() + begin,
                 static_cast<size_t>(blocks_of(range.end) - begin) * sizeof(double));
  }
}

}  // namespace dtrain::engine
