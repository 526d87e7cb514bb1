#include "daemon/waits_for.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "daemon/lifecycle_turn.h"

namespace dtrain::daemon {

namespace {

constexpr size_t kNamedMax = 3;

std::string names_of(const std::vector<const Replica*>& replicas) {
  std::string text;
  for (size_t i = 0; i < std::min(replicas.size(), kNamedMax); ++i) {
    text += (i == 0 ? "" : ", ") + to_string(replicas[i]->id);
  }
  if (replicas.size() > kNamedMax) text += fmt::format(" and {} more", replicas.size() - kNamedMax);
  return text;
}

// Its process, or what that wrote, may still be on its host.
bool may_be_there(const Replica& replica) {
  if (replica.progress == Progress::None || replica.progress == Progress::Released) return false;
  return !replica.lost || (replica.lease_ms == 0 && replica.progress != Progress::Exited);
}

std::string silence(const Host& host, TimeMs now) {
  const TimeMs seconds = std::max<TimeMs>(now - host.last_contact_ms, 0) / 1000;
  return seconds < 120 ? fmt::format("{} s", seconds) : fmt::format("{} min", seconds / 60);
}

}  // namespace

std::string waits_for(const Experiment& experiment, const Model& model, TimeMs now) {
  const auto& hosts = model.hosts;
  if (experiment.over || experiment.phase == Phase::None) return "";
  const bool ends = experiment.outcome || experiment.phase == Phase::Ending;
  std::map<HostId, std::vector<const Replica*>> there;
  for (const Replica& replica : experiment.replicas) {
    if (!may_be_there(replica)) continue;
    if (replica.lost && (experiment.outcome || !ends)) continue;  // given up
    if (!ends && is_build(replica) && replica.end) continue;
    there[replica.seat.host].push_back(&replica);
  }
  std::string text;
  for (const auto& [id, replicas] : there) {
    const auto host = hosts.find(id);
    const bool away = host == hosts.end() || !host->second.connected;
    if (!away && !ends) continue;
    if (!text.empty()) text += "; ";
    const std::string name = host == hosts.end() ? id.hex : host->second.name;
    if (away && model.revoked.contains(id)) {
      text += fmt::format("the key of {} was revoked: {} counts as lost once its lease has run out", name, names_of(replicas));
      continue;
    }
    if (away) {
      const std::string away_since =
          host == hosts.end() ? "is away" : "has been away for " + silence(host->second, now);
      text +=
          ends ? fmt::format("waits for {}, which {} and may still run {}", name, away_since,
                             names_of(replicas))
               : fmt::format("{} {}: {} may go on there, of which nothing is heard until its runner is back{}", name, away_since, names_of(replicas),
                             may_restart(experiment.spec()) || experiment.spec().max_away_ms > 0 ? "" : "; what may not be restarted and has no max-away is not given up before, unless it is killed");
      continue;
    }
    const bool exited = std::all_of(replicas.begin(), replicas.end(), [](const Replica* replica) {
      return replica->progress == Progress::Exited;
    });
    text += exited
                ? fmt::format("waits for the last output of {} from {}", names_of(replicas), name)
                : fmt::format("waits for {} on {} to end", names_of(replicas), name);
  }
  return text;
}

std::string out_of_reach(const Model& model, const ExperimentId& id) {
  std::map<std::string, int64_t>
      away;  // by the host's name: the longest lease there, 0: some has none
  std::set<std::string> revoked;
  const auto end = model.experiments.lower_bound({id.number + 1, 0});
  for (auto it = model.experiments.lower_bound(id); it != end; ++it) {
    if (id.member != 0 && it->first != id) break;
    if (it->second.over) continue;
    for (const Replica& replica : it->second.replicas) {
      if (!may_be_there(replica) || replica.progress == Progress::Exited) continue;
      const auto host = model.hosts.find(replica.seat.host);
      if (host != model.hosts.end() && host->second.connected) continue;
      const std::string name =
          host == model.hosts.end() ? replica.seat.host.hex : host->second.name;
      if (model.revoked.contains(replica.seat.host)) revoked.insert(name);
      const auto [entry, fresh] = away.try_emplace(name, replica.lease_ms);
      const bool unbounded = entry->second == 0 || replica.lease_ms == 0;
      if (!fresh) entry->second = unbounded ? 0 : std::max(entry->second, replica.lease_ms);
    }
  }
  std::string text;
  for (const auto& [name, lease_ms] : away) {
    const bool comes_back = !revoked.contains(name);
    text += fmt::format("{}on {}, {}", text.empty() ? "" : "; ", name,
                        comes_back      ? "which is away, its processes end when its runner is back"
                        : lease_ms > 0 ? "whose key was revoked, its processes end by themselves"
                                        : "whose key was revoked, its processes can't be ended from here");
    if (lease_ms > 0) text += fmt::format("{} within {} min at most", comes_back ? ", and" : "", (lease_ms + 59'999) / 60'000);
  }
  return text;
}

}  // namespace dtrain::daemon
