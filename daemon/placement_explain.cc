#include "daemon/placement_explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "daemon/placement_elastic.h"
#include "daemon/placement_per_host.h"
#include "daemon/placement_reach.h"
#include "schema/tensorboard.h"
#include "schema/text_formats.h"

namespace dtrain::daemon {

namespace {

std::string gibibytes(double bytes) {
  const double size = bytes / static_cast<double>(uint64_t{1} << 30);
  return size < 1000 ? fmt::format("{:.4g} GiB", size) : fmt::format("{:.0f} GiB", size);
}

std::string number_of(int count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string cpus_text(double cpus) {
  return fmt::format("{:.4g} {}", cpus, cpus == 1 ? "cpu" : "cpus");
}

// The same gang, asking only for some of what it needs, to find out which it is that is short.
// `no_cpu`: what stands for asking for none.
Spec only(const Spec& spec, bool memory, bool gpus, bool cpus, double no_cpu) {
  Spec less;
  less.roles = spec.roles;
  less.hard_cpus = spec.hard_cpus;
  less.hard_memory = spec.hard_memory;
  for (RoleSpec& role : less.roles) {
    if (!memory) role.resources.memory_bytes = 0;
    if (!gpus) role.resources.gpus = 0;
    if (!cpus) role.resources.cpus = no_cpu;
  }
  return less;
}

constexpr double kAlmostNoCpu = 1e-9;
// Fits even where a gang shares more cpus than there are, and less than nothing is free.
constexpr double kLessThanNoCpu = -1e6;

enum class Short { Hosts, Ports, Gpus, Memory, Cpus };

Short what_is_short(const ExperimentId& id, const Spec& asked, const FreeHosts& hosts,
                    const Choice& choice) {
  if (is_short_of_hosts(id, asked, hosts, choice)) return Short::Hosts;
  const Spec spec = without_limits(asked);
  if (!fit(id, only(spec, false, false, false, kLessThanNoCpu), hosts, choice)) return Short::Ports;
  if (!fit(id, only(spec, false, true, false, kLessThanNoCpu), hosts, choice)) return Short::Gpus;
  if (!fit(id, only(spec, true, true, false, kLessThanNoCpu), hosts, choice)) return Short::Memory;
  return Short::Cpus;
}

// "4 GPUs on one host", "4 GPUs on each of 2 hosts", "6 GPUs on 2 hosts", as they would lie on empty hosts.
std::string wanted_gpus(const ExperimentId& id, const Spec& spec, const FreeHosts& empty,
                        const Choice& choice) {
  const int total = room_of(spec).gpus;
  const std::string amount = number_of(total, "GPU");
  const auto seats = fit(id, only(spec, true, true, false, kAlmostNoCpu), empty, choice);
  if (!seats) return amount;
  std::map<HostId, int> by_host;
  for (const Seat& seat : *seats) by_host[seat.host] += static_cast<int>(seat.gpus.size());
  std::erase_if(by_host, [](const auto& entry) { return entry.second == 0; });
  if (by_host.size() == 1) return amount + " on one host";
  const int each = by_host.begin()->second;
  if (std::all_of(by_host.begin(), by_host.end(), [&](auto& e) { return e.second == each; })) {
    return fmt::format("{} on each of {} hosts", number_of(each, "GPU"), by_host.size());
  }
  return fmt::format("{} on {} hosts", amount, by_host.size());
}

// The largest amounts first, as "3+4"; the rest is counted.
template <typename Amount>
std::string sum_text(const FreeHosts& hosts, Amount amount) {
  constexpr size_t kShown = 6;
  std::vector<double> amounts;
  for (const FreeHost* free : hosts.open()) amounts.push_back(std::max(amount(*free), 0.0));
  std::sort(amounts.rbegin(), amounts.rend());
  std::string text;
  for (size_t i = 0; i < std::min(amounts.size(), kShown); ++i) {
    text += fmt::format("{}{:.4g}", i == 0 ? "" : "+", amounts[i]);
  }
  if (amounts.size() > kShown) text += fmt::format("+... on {} hosts", amounts.size());
  return text.empty() ? "nothing" : text;
}

template <typename Amount>
const FreeHost* roomiest(const FreeHosts& hosts, Amount amount) {
  const FreeHost* best = nullptr;
  for (const FreeHost* free : hosts.open()) {
    if (best == nullptr || amount(*free) > amount(*best)) best = free;
  }
  return best;
}

double free_gpus(const FreeHost& free) { return static_cast<double>(free.gpus.size()); }
double free_cpus(const FreeHost& free) { return free.cpus; }
double free_memory(const FreeHost& free) { return static_cast<double>(free.memory_bytes); }

uint64_t largest_memory(const Spec& spec) {
  uint64_t most = 0;
  for (const RoleSpec& role : spec.roles) most = std::max(most, role.resources.memory_bytes);
  return most;
}

double total_memory(const Spec& spec) {
  double sum = 0;
  for (const RoleSpec& role : spec.roles) {
    sum += role.count * static_cast<double>(role.resources.memory_bytes);
  }
  return sum;
}

bool one_exceeds_memory(const Spec& spec, const FreeHosts& hosts) {
  const FreeHost* best = roomiest(hosts, free_memory);
  return best == nullptr || static_cast<double>(largest_memory(spec)) > free_memory(*best);
}

std::string wanted_memory(const Spec& spec, const FreeHosts& hosts) {
  if (!one_exceeds_memory(spec, hosts)) return gibibytes(total_memory(spec));
  return gibibytes(static_cast<double>(largest_memory(spec))) + " on one host";
}

double largest_cpus(const Spec& spec) {
  double most = 0;
  for (const RoleSpec& role : spec.roles) most = std::max(most, role.resources.cpus);
  return most;
}

std::string wanted_cpus(const Spec& spec, const FreeHosts& hosts) {
  const double most = largest_cpus(spec);
  const FreeHost* best = roomiest(hosts, free_cpus);
  if (best == nullptr || most > free_cpus(*best)) return cpus_text(most) + " on one host";
  return cpus_text(room_of(spec).cpus);
}

// ": GPU 3 of n1 busy: anna, pid 4242, 31.0 GB"; nothing when no GPU is.
std::string busy_text(const FreeHosts& hosts, std::string_view lead) {
  constexpr size_t kNamed = 2;
  std::string text;
  size_t busy = 0;
  for (const auto& [id, free] : hosts.all()) {
    for (const Gpu& gpu : free.host->gpus) {
      if (gpu.busy.empty() || ++busy > kNamed) continue;
      text += fmt::format("{}GPU {} of {} busy: {}", busy == 1 ? lead : "; ", gpu.index,
                          free.host->name, gpu.busy);
    }
  }
  if (busy > kNamed) text += fmt::format(" and {} more", busy - kNamed);
  return text;
}

// The same gang without hard limits, and without saying how long it takes.
Spec soft(const Spec& spec) {
  Spec less;
  less.roles = spec.roles;
  return less;
}

// With them, and without saying how long it takes.
Spec timeless(const Spec& spec) {
  Spec less = soft(spec);
  less.hard_cpus = spec.hard_cpus;
  less.hard_memory = spec.hard_memory;
  return less;
}

// "; gpu may bring 2 hosts".
std::string pools_text(const std::vector<Seat>& seats, const FreeHosts& obtainable) {
  std::map<std::string, std::set<HostId>> by_pool;
  for (const Seat& seat : seats) {
    const Host& host = *obtainable.find(seat.host)->host;
    if (host.potential) by_pool[host.pool].insert(host.id);
  }
  std::string text;
  for (const auto& [pool, hosts] : by_pool) {
    text += fmt::format("; {} may bring {}", pool, number_of(static_cast<int>(hosts.size()), "host"));
  }
  return text;
}

Waits waits(const ExperimentId& id, const Spec& spec, const FreeHosts& hosts,
            const FreeHosts& empty, const Choice& choice, double stretch) {
  if (stretch > 1) {
    return {fmt::format("needs {:.4g} cpus, more than there are: waits until the hosts are idle to "
                        "share theirs",
                        room_of(spec).cpus)};
  }
  Choice any_time = choice;
  any_time.now = 0;
  if (choice.now != 0 && fit(id, spec, hosts, any_time)) {
    return {"needs hosts that stay longer than those that are free"};
  }
  switch (what_is_short(id, spec, hosts, choice)) {
    case Short::Hosts: return {short_of_hosts(id, spec, hosts, choice, false)};
    case Short::Gpus:
      return {fmt::format("needs {}; free: {}{}", wanted_gpus(id, spec, empty, choice),
                          sum_text(hosts, free_gpus), busy_text(hosts, "; "))};
    case Short::Memory: {
      const FreeHost* best = roomiest(hosts, free_memory);
      return {fmt::format("needs {}; most is free on {}: {}", wanted_memory(spec, hosts),
                          best->host->name, gibibytes(std::max(free_memory(*best), 0.0)))};
    }
    case Short::Cpus:
      return {fmt::format("needs {}; free: {}", wanted_cpus(spec, hosts),
                          sum_text(hosts, free_cpus))};
    case Short::Ports: break;
  }
  return {fmt::format("needs {}; the hosts' port ranges are in use",
                      number_of(spec.replica_count(), "free port"))};
}

// Where what it asks for may be.
const char* elsewhere(const Choice& choice) {
  return choice.host.empty() ? "add a host" : "choose another host";
}

// How to ask for other resources; not where roles may have their own.
std::string example(const Spec& spec, std::string_view resource) {
  const bool is_alone = spec.roles.size() == 1 && spec.roles.front().role == Role::Train;
  return is_alone ? fmt::format(", e.g. --set train.resources.{}", resource) : "";
}

Never no_limits(const Spec& spec) {
  const char* what = !spec.hard_cpus     ? "{mem: hard}"
                     : !spec.hard_memory ? "{cpus: hard}"
                                         : "{cpus: hard, mem: hard}";
  return {fmt::format("needs a host that can keep `limits: {}`, and none that is large enough can",
                      what),
          "`dtrain hosts` says why; --set train.limits=null does without"};
}

Never never(const ExperimentId& id, const Spec& asked, const FreeHosts& empty,
            const Choice& choice) {
  if (stretch_needed(id, timeless(asked), empty, choice) > 0) {
    return {fmt::format("may take {}, and no host that stays so long is large enough",
                        format_duration_ms(asked.max_duration_ms)),
            "lower `max-duration`, or give the pool a longer `time`"};
  }
  const Spec spec = soft(asked);
  if (stretch_needed(id, spec, empty, choice) > 0) return no_limits(asked);
  switch (what_is_short(id, spec, empty, choice)) {
    case Short::Hosts:
      return {short_of_hosts(id, spec, empty, choice, true),
              fmt::format("raise `per-host`, ask for fewer replicas, or {}", elsewhere(choice))};
    case Short::Gpus: {
      const FreeHost* best = roomiest(empty, free_gpus);
      return {fmt::format("needs {}; the largest host is {} with {}, all hosts: {}",
                          wanted_gpus(id, spec, empty, choice), best->host->name,
                          number_of(static_cast<int>(best->gpus.size()), "GPU"),
                          sum_text(empty, free_gpus)),
              fmt::format("{}{}, or {}", kFewerGpus, example(spec, "gpus=0"), elsewhere(choice))};
    }
    case Short::Memory: {
      const FreeHost* best = roomiest(empty, free_memory);
      return {fmt::format("needs {}; the largest is {} with {}", wanted_memory(spec, empty),
                          best->host->name, gibibytes(free_memory(*best))),
              one_exceeds_memory(spec, empty)
                  ? fmt::format("lower `mem`{}, or {}", example(spec, "mem=1GiB"), elsewhere(choice))
                  : fmt::format("ask for fewer replicas, for less `mem` each, or {}", elsewhere(choice))};
    }
    case Short::Cpus: {
      const FreeHost* best = roomiest(empty, free_cpus);
      if (largest_cpus(spec) <= best->cpus) {   // no one replica is too large
        return {fmt::format("needs {}; all hosts together: {}", wanted_cpus(spec, empty), sum_text(empty, free_cpus)),
                fmt::format("ask for fewer replicas, for fewer `cpus` each, or {}", elsewhere(choice))};
      }
      return {fmt::format("needs {}; the largest is {} with {:.4g}", wanted_cpus(spec, empty),
                          best->host->name, best->cpus),
              fmt::format("lower `cpus`, e.g. --set train.resources.cpus=1, or {}", elsewhere(choice))};
    }
    case Short::Ports: break;
  }
  return {fmt::format("needs {}, more than the hosts' port ranges have",
                      number_of(spec.replica_count(), "port")),
          "widen the port range of the hosts"};
}

bool is_any_wanted(const FreeHosts& hosts, const std::string& wanted) {
  return std::any_of(hosts.all().begin(), hosts.all().end(),
                     [&](const auto& entry) { return is_wanted(*entry.second.host, wanted); });
}

FreeHosts those_wanted(const FreeHosts& hosts, const std::string& wanted) {
  FreeHosts those;
  for (const auto& [id, free] : hosts.all()) {
    if (is_wanted(*free.host, wanted)) those.put(free);
  }
  return those;
}

// "n1, twin (0a1b2c3d), twin (4e5f6071)".
std::string known_names(const FreeHosts& hosts) {
  std::multimap<std::string, HostId> names;
  std::set<std::string> pools;
  for (const auto& [id, free] : hosts.all()) {
    const Host& host = *free.host;
    if (!host.pool.empty()) pools.insert(host.pool);
    if (!host.potential) names.emplace(host.name, id);
  }
  std::string text = fmt::format("{}", fmt::join(pools, ", "));
  for (const auto& [name, id] : names) {
    text += (text.empty() ? "" : ", ") + name;
    if (names.count(name) > 1) text += fmt::format(" ({})", id.hex.substr(0, kShownIdDigits));
  }
  return text;
}

constexpr const char* kGiveAddress =
    "set `address` below `host:` in its config.yml, or join it with --address";

bool are_all_addressed(const FreeHosts& hosts) {
  return std::none_of(hosts.all().begin(), hosts.all().end(),
                      [](const auto& entry) { return entry.second.host->address.empty(); });
}

// Whether the gang would fit if only every host had an address, and who lacks one for that: "n1 has
// no address that other hosts reach". Empty: that is not why.
std::string addresses_lacking(const ExperimentId& id, const Spec& spec, const FreeHosts& hosts,
                              const Choice& choice) {
  Choice as_if = choice;
  as_if.as_if_addressed = true;
  const auto seats = fit(id, spec, hosts, as_if);
  if (!seats) return "";
  std::set<std::string> names;
  for (const Seat& seat : *seats) {
    const Host& host = *hosts.find(seat.host)->host;
    if (host.address.empty()) names.insert(host.name);
  }
  if (names.empty()) return "";
  return fmt::format("{}{} no address that other hosts reach", *names.begin(),
                     names.size() == 1 ? " has" : fmt::format(" and {} more have", names.size() - 1));
}

std::string with_addresses(std::string text, const std::string& lacking) {
  if (lacking.empty()) return text;
  return fmt::format("{}; it can't be spread, since {}: {}", text, lacking, kGiveAddress);
}

Placement explain_room(const ExperimentId& id, const Spec& spec, const FreeHosts& known,
                       const Choice& choice, double stretch) {
  const bool all_known = std::all_of(known.all().begin(), known.all().end(), [](const auto& entry) {
    return entry.second.host->cpus > 0 || entry.second.seats == 0;
  });
  if (known.all().empty() || (known.open().empty() && !all_known)) {
    return Waits{"no host is connected yet"};
  }
  if (!choice.host.empty() && all_known && !is_any_wanted(known, choice.host)) {
    const bool is_name = choice.host.find_first_of(",*?[!") == std::string::npos;
    return Never{fmt::format("no host {} '{}'", is_name ? "is named" : "is one of", choice.host),
                 "known hosts: " + known_names(known)};
  }
  // What others have is no reason for where it may go.
  const FreeHosts called = choice.host.empty() ? FreeHosts() : those_wanted(known, choice.host);
  const FreeHosts& hosts = choice.host.empty() ? known : called;
  const FreeHosts connected = emptied(hosts, Which::Connected);
  const FreeHosts every = emptied(hosts, Which::Known);
  const FreeHosts obtainable = emptied(hosts, Which::Obtainable);
  if (stretch > 0 && stretch_needed(id, spec, connected, choice) == 0) {
    if (const auto seats = fit(id, spec, obtainable, choice, stretch)) {
      std::string reason = "needs more than there is here";
      if (!connected.open().empty()) reason = waits(id, spec, hosts, connected, choice, 1).reason;
      return Waits{reason + pools_text(*seats, obtainable)};
    }
  }
  if (stretch > 0) {
    FreeHosts able;
    for (const auto& [host, free] : hosts.all()) {
      if (keeps_limits(spec, *free.host)) able.put(free);
    }
    if (able.open().size() == hosts.open().size()) return waits(id, spec, hosts, connected, choice, stretch);
    Waits waiting = waits(id, spec, able, emptied(able, Which::Connected), choice, stretch);
    waiting.reason += "; only hosts that can keep its hard limits count";
    return waiting;
  }
  if (const double enough = stretch_needed(id, spec, every, choice); enough > 0) {
    const auto seats = fit(id, spec, every, choice, enough);
    INVARIANT(seats, "it was found to fit");
    for (const Seat& seat : *seats) {
      const FreeHost& free = *hosts.find(seat.host);
      if (free.open) continue;
      if (!free.host->connected) {
        return Waits{fmt::format("waits for {}, which is not connected", free.host->name)};
      }
      if (free.drained) {
        return Waits{fmt::format("waits for {0}, which is drained until `hosts undrain {0}`", free.host->name)};
      }
      if (free.unreadable != 0) {
        return Waits{fmt::format("waits for {0}, which has something of {1}, and what is stored of {1} can't be read: `dtrain kill {1}` ends it",
                                 free.host->name, free.unreadable)};
      }
      return Waits{fmt::format("waits for {}, which still ends replicas of an earlier attempt",
                               free.host->name)};
    }
    if (what_is_short(id, spec, connected, choice) == Short::Ports) {
      return Waits{"waits for ports that other programs use, which are tried again after a while"};
    }
    return Waits{"waits for GPUs that others use" + busy_text(hosts, ": ")};
  }
  // A host known only from before the daemon's restart may be the one that has it.
  if (!all_known) return Waits{"waits for hosts that have not come back yet"};
  if (const std::string lacking = addresses_lacking(id, spec, every, choice); !lacking.empty()) {
    return Never{"needs several hosts, and " + lacking, kGiveAddress};
  }
  return never(id, spec, every, choice);
}

}  // namespace

Placement explain(const ExperimentId& id, const Spec& spec, const FreeHosts& hosts,
                  const Choice& choice, double stretch) {
  if (only_shows(spec)) return explain_room(id, spec, nearest_first(spec, hosts, choice).back(), choice, stretch);
  Placement placement = explain_room(id, spec, hosts, choice, stretch);
  if (auto* waits = std::get_if<Waits>(&placement); waits != nullptr && !are_all_addressed(hosts)) {
    // Where it fits the empty hosts as they are, only what an address would change at once matters.
    const FreeHosts idle = emptied(hosts, Which::Connected);
    waits->reason = with_addresses(std::move(waits->reason), addresses_lacking(id, spec, stretch == 1 ? hosts : idle, choice));
  }
  return placement;
}

std::string sharing_notice(const Spec& spec, const std::vector<Seat>& seats, const FreeHosts& hosts,
                           const Choice& choice) {
  const LeastGang least(spec);
  double asked = 0, have = 0;
  std::set<HostId> used;
  for (const Seat& seat : seats) {
    asked += seat.cpus;
    if (used.insert(seat.host).second) have += hosts.find(seat.host)->host->cpus;
  }
  std::string text = fmt::format("{} ask for {:.4g} cpus and share the {:.4g} of {}",
                                 number_of(static_cast<int>(seats.size()), "replica"), asked, have,
                                 used.size() == 1 ? hosts.find(*used.begin())->host->name
                                                  : number_of(static_cast<int>(used.size()), "host"));
  if (are_all_addressed(hosts)) return text;
  const Choice any_amount{choice.host, choice.excluded, nullptr, choice.lane};
  return with_addresses(std::move(text),
                        addresses_lacking(seats.front().replica.experiment, least.spec(),
                                          emptied(hosts, Which::Connected), any_amount));
}

}  // namespace dtrain::daemon
