#include "daemon/placement_fitness.h"

#include <fmt/format.h>

#include <algorithm>

#include "daemon/placement_elastic.h"

namespace dtrain::daemon {

namespace {

constexpr size_t kLacksNamed = 3;
constexpr size_t kHostsNamed = 3;

std::string name_of(const Model& model, const HostId& id) {
  const auto host = model.hosts.find(id);
  if (host != model.hosts.end()) return host->second.name;
  for (const auto& [name, pool] : model.pools) {
    if (id == id_of_pool(name)) return fmt::format("the hosts of {}", name);
  }
  return id.hex.substr(0, 8);
}

// "n1, n2, n3 and 4 more".
std::string some_of(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  const size_t named = std::min(names.size(), kHostsNamed);
  std::string text =
      fmt::format("{}", fmt::join(names.begin(), names.begin() + static_cast<long>(named), ", "));
  if (names.size() > named) text += fmt::format(" and {} more", names.size() - named);
  return text;
}

// It is told of its pool as a whole.
bool is_of_unfit_pool(const Model& model, const Experiment& experiment, const HostId& id) {
  const auto host = model.hosts.find(id);
  return host != model.hosts.end() && !host->second.pool.empty() && is_unfit(experiment, id_of_pool(host->second.pool));
}

}  // namespace

bool is_unfit(const Experiment& experiment, const HostId& host) {
  return experiment.unfit_hosts && experiment.unfit_hosts->contains(host);
}

std::vector<HostId> unfit_hosts(const Experiment& experiment) {
  std::vector<HostId> hosts;
  if (!experiment.unfit_hosts) return hosts;
  for (const auto& [host, lack] : *experiment.unfit_hosts) hosts.push_back(host);
  return hosts;
}

std::string lacks_text(const Model& model, const Experiment& experiment) {
  if (!experiment.unfit_hosts) return "";
  std::map<std::string, std::vector<std::string>> hosts_by_lack;
  for (const auto& [host, lack] : *experiment.unfit_hosts) {
    if (!is_of_unfit_pool(model, experiment, host)) hosts_by_lack[lack].push_back(name_of(model, host));
  }
  std::string text;
  size_t named = 0;
  for (auto& [lack, hosts] : hosts_by_lack) {
    if (named++ == kLacksNamed) {
      return text + fmt::format("; and {} more", hosts_by_lack.size() - kLacksNamed);
    }
    text += fmt::format("{}{} on {}", text.empty() ? "" : "; ", lack, some_of(std::move(hosts)));
  }
  return text;
}

bool has_no_host_left(const Model& model, const Experiment& experiment, TimeMs now) {
  if (!experiment.unfit_hosts || now < model.hosts_awaited_until_ms) return false;
  for (const auto& [id, host] : model.hosts) {
    // Known only from its seats: whoever it is, it may have all that is asked for. Once all there is lost it is
    // not waited for.
    const FreeHost* free = model.free.find(id);
    if (host.cpus == 0 && !is_unfit(experiment, id) && free != nullptr && free->seats > 0) return false;
  }
  const Choice choice{experiment.submission->host, unfit_hosts(experiment), nullptr};
  return stretch_needed(experiment.id, LeastGang(experiment.spec()).spec(), emptied(model.free, Which::Known), choice) == 0;
}

std::string no_host_left_text(const Model& model, const Experiment& experiment) {
  const bool all = std::all_of(model.hosts.begin(), model.hosts.end(), [&](const auto& entry) {
    const Host& host = entry.second;
    return is_unfit(experiment, entry.first) || (!host.pool.empty() && is_unfit(experiment, id_of_pool(host.pool)));
  });
  const bool by_path = experiment.spec().image.empty();
  return fmt::format("{}{}; {}", lacks_text(model, experiment), all ? "" : ", and no other host could take it",
                     by_path ? "put it there by the same path, or name another one in dtrain.yml"
                             : "mend that there, or name another one in dtrain.yml; --no-image does without the image");
}

}  // namespace dtrain::daemon
