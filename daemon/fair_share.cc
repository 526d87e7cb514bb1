#include "daemon/fair_share.h"

#include <algorithm>

#include "daemon/queue.h"

namespace dtrain::daemon {

FairShare::FairShare(const Model& model) : model_(model) {
  if (model.fair_share.empty()) return;
  for (const auto& [id, host] : model.hosts) {
    if (!host.connected) continue;
    total_.cpus += host.cpus;
    total_.memory_bytes += static_cast<int64_t>(host.memory_bytes);
    total_.gpus += static_cast<int>(host.gpus.size());
  }
}

double FairShare::part_of(const std::string& user, bool preemptible) const {
  if (model_.fair_share.empty()) return 0;
  const auto found = model_.users.find(user);
  if (found == model_.users.end()) return 0;
  const auto [counted, besides] = found->second;
  double most = 0;
  const auto look_at = [&](double has, double more, double all) {
    if (all > 0) most = std::max(most, (has + (preemptible ? more : 0)) / all);
  };
  look_at(counted.cpus, besides.cpus, total_.cpus);
  look_at(static_cast<double>(counted.memory_bytes), static_cast<double>(besides.memory_bytes), static_cast<double>(total_.memory_bytes));
  look_at(counted.gpus, besides.gpus, total_.gpus);
  return most;
}

double FairShare::of(const Experiment& experiment) const { return of(experiment.submission->user, experiment.spec().preemptible); }

bool FairShare::goes_before(const Experiment& a, const Experiment& b) const {
  const QueueOrder first = order_of(a), second = order_of(b);
  if (model_.fair_share.empty() || first.behind != second.behind) return first < second;
  const double has = of(a), other_has = of(b);
  return has == other_has ? first < second : has < other_has;
}

double FairShare::weight_of(const std::string& user) const {
  for (const Weight& one : model_.fair_share) {
    if (one.user.empty() || one.user == user) return one.weight;
  }
  return 1;
}

std::string lane_of_share(const Model& model, const Experiment& experiment) {
  if (model.fair_share.empty()) return "";
  return (experiment.spec().preemptible ? "|p" : "|u") + experiment.submission->user;
}

void Turns::add(const QueueOrder& order, const std::string& lane) {
  Whose whose;
  if (!model_.fair_share.empty()) {
    const Experiment& experiment = model_.experiments.at(order.id);
    whose = {experiment.submission->user, experiment.spec().preemptible};
  }
  heads_[order.behind][whose].emplace(order, lane);
}

std::pair<QueueOrder, std::string> Turns::take_first() {
  const auto equals = heads_.begin();
  auto first = equals->second.begin();
  double least = equals->second.size() > 1 ? share_.of(first->first.user, first->first.preemptible) : 0;
  for (auto it = std::next(first); it != equals->second.end(); ++it) {
    const double has = share_.of(it->first.user, it->first.preemptible);
    if (has > least || (has == least && *first->second.begin() < *it->second.begin())) continue;
    first = it;
    least = has;
  }
  auto taken = std::move(first->second.extract(first->second.begin()).value());
  if (first->second.empty()) equals->second.erase(first);
  if (equals->second.empty()) heads_.erase(equals);
  return taken;
}

}  // namespace dtrain::daemon
