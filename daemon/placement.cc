#include "daemon/placement.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "daemon/placement_elastic.h"
#include "daemon/placement_explain.h"
#include "daemon/placement_reach.h"
#include "daemon/quota.h"
#include "schema/tensorboard.h"

namespace dtrain::daemon {

namespace {

constexpr double kCpuSlack = 1e-6;      // fractions of cpus add up inexactly
constexpr double kStretchStep = 1.25;   // cpus are shared as little as possible, in such steps
constexpr double kStretchMax = 1024;

bool lasts_long_enough(const Spec& spec, const Host& host, TimeMs now) {
  if (host.lasts_ms == 0 || (now == 0 && !host.potential)) return true;
  // One that is yet to come has lost some of it by the time it is here.
  const int64_t left_ms = host.potential ? host.lasts_ms - leaves_early_ms(host) : host.ends_ms - now;
  if (spec.max_duration_ms == 0) return left_ms >= host.lasts_ms / 2;
  return spec.max_duration_ms + spec.stop_grace_ms <= left_ms - leaves_early_ms(host);
}

}  // namespace

bool may_take(const Spec& spec, const Host& host, const Choice& choice) {
  if (!choice.host.empty() && !is_wanted(host, choice.host)) return false;
  if (!keeps_limits(spec, host)) return false;
  if (!host.kept_lane.empty() && host.kept_lane != choice.lane) return false;
  if (!lasts_long_enough(spec, host, choice.now)) return false;
  const auto excluded = [&](const HostId& id) {
    return std::find(choice.excluded.begin(), choice.excluded.end(), id) != choice.excluded.end();
  };
  return !excluded(host.id) && (host.pool.empty() || !excluded(id_of_pool(host.pool)));
}

namespace {

// The replicas of one role that still need a host.
struct Need {
  const RoleSpec* role;
  int left;
};

// What one host takes of a gang: how many of each role, in Spec order.
struct Share {
  const FreeHost* host;
  std::vector<int> count;
};

class Fitting {
 public:
  Fitting(const Spec& spec, const FreeHosts& hosts, const Choice& choice, double stretch)
      : spec_(spec), hosts_(hosts), choice_(choice), stretch_(stretch) {
    for (const RoleSpec& role : spec.roles) {
      is_limited_ = is_limited_ || role.per_host > 0;
      if (role.per_host > 0) limited_cpus_ = std::max(limited_cpus_, role.resources.cpus);
      needs_.push_back({&role, role.count});
    }
    // What is hardest to find goes first: whole GPUs, then memory, then cpus.
    for (size_t i = 0; i < needs_.size(); ++i) hardest_first_.push_back(i);
    std::stable_sort(hardest_first_.begin(), hardest_first_.end(), [&](size_t a, size_t b) {
      const Resources& x = spec.roles[a].resources;
      const Resources& y = spec.roles[b].resources;
      return std::tie(x.gpus, x.memory_bytes, x.cpus) > std::tie(y.gpus, y.memory_bytes, y.cpus);
    });
  }

  std::optional<std::vector<Share>> run() {
    if (is_for_one_host()) {
      if (const FreeHost* one = tightest(total())) return std::vector<Share>{take_all(one)};
    }
    if (auto shares = over_several(hardest_first_)) return shares;
    if (is_limited_) {
      // Or else what each host takes little of, before others take all that it has.
      std::vector<size_t> limited_first = hardest_first_;
      std::stable_partition(limited_first.begin(), limited_first.end(), [&](size_t i) { return needs_[i].role->per_host > 0; });
      for (Need& need : needs_) need.left = need.role->count;
      used_.clear();
      if (auto shares = over_several(limited_first)) return shares;
    }
    return evenly();
  }

 private:
  Room room(const FreeHost& free) const {
    Room room{free.cpus, free.memory_bytes, static_cast<int>(free.gpus.size()), free.port_count()};
    if (stretch_ > 1) room.cpus = free.seats == 0 ? free.host->cpus * stretch_ : 0;
    if (choice_.kept_free == nullptr) return room;
    if (const auto kept = choice_.kept_free->find(free.host->id); kept != choice_.kept_free->end()) {
      room.cpus = std::min(room.cpus, kept->second.cpus);
      room.memory_bytes = std::min(room.memory_bytes, kept->second.memory_bytes);
      room.gpus = std::min(room.gpus, kept->second.gpus);
      room.ports = std::min(room.ports, kept->second.ports);
    }
    return room;
  }

  bool allowed(const FreeHost& free) const {
    const Host& host = *free.host;
    if (is_spread_ && host.address.empty() && !choice_.as_if_addressed) return false;
    if (stretch_ > 1 && !host.pool.empty()) return false;   // a pool may be asked for as many as it takes
    // Who has to go where fewer are has no need of a host that is too small for one alone.
    if (stretch_ > 1 && host.cpus + kCpuSlack < limited_cpus_) return false;
    return may_take(spec_, host, choice_);
  }

  // Who asks for no memory fits even where less than nothing is left.
  static bool fits(const Room& room, const Room& need) {
    return room.gpus >= need.gpus &&
           (need.memory_bytes == 0 || room.memory_bytes >= need.memory_bytes) &&
           room.cpus + kCpuSlack >= need.cpus && room.ports >= need.ports;
  }

  Room total() const {
    Room sum;
    for (const Need& need : needs_) {
      sum.cpus += need.left * need.role->resources.cpus;
      sum.memory_bytes += need.left * static_cast<int64_t>(need.role->resources.memory_bytes);
      sum.gpus += need.left * need.role->resources.gpus;
      sum.ports += need.left;
    }
    return sum;
  }

  // By what a host takes of a role, not by what it has: whether one may have all that is left.
  bool is_for_one_host() const {
    return std::all_of(needs_.begin(), needs_.end(), [&](const Need& each) {
      int left = 0;
      for (const Need& need : needs_) left += counted_as(need.role->role) == counted_as(each.role->role) ? need.left : 0;
      return each.role->per_host == 0 || left <= each.role->per_host;
    });
  }

  // How many more of a role the host of this share takes, if it has room.
  int limit_left(const Share& share, size_t role) const {
    const RoleSpec& each = spec_.roles[role];
    if (each.per_host == 0) return each.count;
    int taken = 0;
    for (size_t i = 0; i < share.count.size(); ++i) {
      if (counted_as(spec_.roles[i].role) == counted_as(each.role)) taken += share.count[i];
    }
    return each.per_host - taken;
  }

  // The tightest host that takes all of `need`; hosts are in that order. Jumps over those of one GPU
  // count that have too few cpus.
  const FreeHost* tightest(const Room& need) const {
    const FreeHosts::BySize& open = hosts_.open();
    const double cpus = stretch_ > 1 ? 0 : need.cpus - kCpuSlack;
    FreeHosts::Size from{static_cast<size_t>(need.gpus), cpus};
    auto it = open.lower_bound(from);
    while (it != open.end()) {
      if ((*it)->cpus < cpus) {
        it = open.lower_bound(FreeHosts::Size{(*it)->gpus.size(), cpus});
        continue;
      }
      if (allowed(**it) && !used_.contains(*it) && fits(room(**it), need)) return *it;
      ++it;
    }
    return nullptr;
  }

  Share take_all(const FreeHost* host) {
    Share share{host, {}};
    for (Need& need : needs_) share.count.push_back(std::exchange(need.left, 0));
    return share;
  }

  // As many as fit on this host, in that order.
  Share take_some(const FreeHost* host, const std::vector<size_t>& order) {
    Share share{host, std::vector<int>(needs_.size(), 0)};
    Room left = room(*host);
    for (const size_t i : order) {
      Need& need = needs_[i];
      const Resources& each = need.role->resources;
      double most = std::min({need.left, left.ports, limit_left(share, i)});
      // Less than none is asked for to see what else is short.
      if (each.cpus > 0) most = std::min(most, (left.cpus + kCpuSlack) / each.cpus);
      if (each.memory_bytes > 0) {
        most = std::min(most, static_cast<double>(left.memory_bytes) /
                                  static_cast<double>(each.memory_bytes));
      }
      if (each.gpus > 0) most = std::min<double>(most, left.gpus / each.gpus);
      const int count = std::max(static_cast<int>(std::floor(most)), 0);
      share.count[i] = count;
      need.left -= count;
      left.ports -= count;
      left.cpus -= count * each.cpus;
      left.memory_bytes -= count * static_cast<int64_t>(each.memory_bytes);
      left.gpus -= count * each.gpus;
    }
    return share;
  }

  bool done() const {
    return std::all_of(needs_.begin(), needs_.end(), [](const Need& need) { return need.left == 0; });
  }

  // Hosts of equal room stay in the order of their names.
  std::vector<const FreeHost*> roomiest_first() const {
    const auto same_room = [](const FreeHost* a, const FreeHost* b) {
      return a->gpus.size() == b->gpus.size() && a->cpus == b->cpus &&
             a->memory_bytes == b->memory_bytes;
    };
    std::vector<const FreeHost*> hosts(hosts_.open().rbegin(), hosts_.open().rend());
    for (size_t begin = 0, end = 0; begin < hosts.size(); begin = end) {
      while (end < hosts.size() && same_room(hosts[begin], hosts[end])) ++end;
      std::reverse(hosts.begin() + static_cast<long>(begin), hosts.begin() + static_cast<long>(end));
    }
    return hosts;
  }

  // The roomiest hosts first, so that they are few; what is left at the end goes to the tightest host
  // that takes it.
  std::optional<std::vector<Share>> over_several(const std::vector<size_t>& order) {
    is_spread_ = true;
    std::vector<const FreeHost*> candidates = roomiest_first();
    if (total().gpus == 0) {
      std::stable_sort(candidates.begin(), candidates.end(),
                       [](const FreeHost* a, const FreeHost* b) { return a->cpus > b->cpus; });
    }
    std::vector<Share> shares;
    for (const FreeHost* candidate : candidates) {
      if (!allowed(*candidate)) continue;
      const Room rest = total();
      if (is_for_one_host() && fits(room(*candidate), rest)) {
        const FreeHost* last = tightest(rest);
        shares.push_back(take_all(last != nullptr ? last : candidate));
        return shares;
      }
      Share share = take_some(candidate, order);
      if (std::all_of(share.count.begin(), share.count.end(), [](int n) { return n == 0; })) {
        continue;
      }
      used_.insert(candidate);
      shares.push_back(std::move(share));
      if (done()) return shares;
    }
    return std::nullopt;
  }

  bool has_roles_of_one_size() const {
    return std::all_of(spec_.roles.begin(), spec_.roles.end(), [&](const RoleSpec& role) {
      return role.resources == spec_.roles.front().resources;
    });
  }

  // What of the host is left in parts of all it has, of that which is shortest once one more is there.
  static double least_left(const Room& left, const Host& host, const Resources& each) {
    double least = (left.cpus - each.cpus) / std::max(host.cpus, 1e-9);
    least = std::min(least, static_cast<double>(left.memory_bytes - static_cast<int64_t>(each.memory_bytes)) /
                                static_cast<double>(std::max<uint64_t>(host.memory_bytes, 1)));
    if (each.gpus > 0) {
      least = std::min(least, static_cast<double>(left.gpus - each.gpus) / static_cast<double>(host.gpus.size()));
    }
    return least;
  }

  struct Spreading {
    std::vector<Share> shares;
    std::vector<Room> left;   // of each share's host
    size_t looks;             // at a host for a replica, that may be taken before it is given up
  };

  // Where the first host takes so many of one role that others find no room beside them on the last, each
  // goes where most is left, or else where less is. Of small gangs only: it looks at every host for every replica.
  std::optional<std::vector<Share>> evenly() const {
    constexpr size_t kLooksMax = 1 << 12;
    if (has_roles_of_one_size() && !is_limited_) return std::nullopt;
    Spreading so_far{{}, {}, kLooksMax};
    Room all;
    for (const FreeHost* host : roomiest_first()) {
      if (!allowed(*host)) continue;
      so_far.shares.push_back({host, std::vector<int>(spec_.roles.size(), 0)});
      so_far.left.push_back(room(*host));
      add(all, what_is_there(so_far.left.back()), 1);
    }
    const size_t once = so_far.shares.size() * static_cast<size_t>(spec_.replica_count());
    if (once > kLooksMax || !fits(all, whole_gang())) return std::nullopt;
    so_far.looks += once;
    if (!spread(so_far, 0, 0)) return std::nullopt;
    std::erase_if(so_far.shares, [](const Share& share) {
      return std::all_of(share.count.begin(), share.count.end(), [](int n) { return n == 0; });
    });
    return std::move(so_far.shares);
  }

  // The rest, of which `placed` of the role that is the `nth` hardest have their host.
  bool spread(Spreading& so_far, size_t nth, int placed) const {
    if (nth == hardest_first_.size()) return true;
    const size_t role = hardest_first_[nth];
    if (placed == spec_.roles[role].count) return spread(so_far, nth + 1, 0);
    const Resources& each = spec_.roles[role].resources;
    const Room need{each.cpus, static_cast<int64_t>(each.memory_bytes), each.gpus, 1};
    std::vector<std::pair<double, size_t>> hosts;
    for (size_t at = 0; at < so_far.shares.size(); ++at) {
      if (so_far.looks == 0) return false;
      --so_far.looks;
      if (fits(so_far.left[at], need) && limit_left(so_far.shares[at], role) > 0) hosts.emplace_back(-least_left(so_far.left[at], *so_far.shares[at].host->host, each), at);
    }
    std::sort(hosts.begin(), hosts.end());
    for (const auto& [rest, at] : hosts) {
      ++so_far.shares[at].count[role];
      add(so_far.left[at], need, -1);
      if (spread(so_far, nth, placed + 1)) return true;
      --so_far.shares[at].count[role];
      add(so_far.left[at], need, 1);
      if (so_far.looks == 0) return false;
    }
    return false;
  }

  // A host may have less than nothing left.
  static Room what_is_there(const Room& room) {
    return {std::max(room.cpus, 0.0), std::max<int64_t>(room.memory_bytes, 0), std::max(room.gpus, 0), std::max(room.ports, 0)};
  }

  static void add(Room& room, const Room& other, int sign) {
    room.cpus += sign * other.cpus;
    room.memory_bytes += sign * other.memory_bytes;
    room.gpus += sign * other.gpus;
    room.ports += sign * other.ports;
  }

  Room whole_gang() const {
    Room sum;
    for (const RoleSpec& role : spec_.roles) {
      const Resources& each = role.resources;
      const int64_t memory_bytes = role.count * static_cast<int64_t>(each.memory_bytes);
      add(sum, {role.count * each.cpus, memory_bytes, role.count * each.gpus, role.count}, 1);
    }
    return sum;
  }

  const Spec& spec_;
  const FreeHosts& hosts_;
  const Choice& choice_;
  const double stretch_;
  bool is_limited_ = false;             // some role takes no more than so many of a host
  double limited_cpus_ = 0;             // that one of these asks for at the most
  bool is_spread_ = false;              // no one host takes all: only those that others reach
  std::vector<Need> needs_;             // Spec order
  std::vector<size_t> hardest_first_;
  std::set<const FreeHost*> used_;
};

// Hands out concrete GPUs and ports of one host.
struct Dispenser {
  explicit Dispenser(const FreeHost& free)
      : host(free.host), gpus(free.gpus), used(free.ports_used), port(free.port_next) {}

  int next_port() {
    for (int tried = host->port_first; tried <= host->port_last; ++tried) {
      if (port < host->port_first || port > host->port_last) port = host->port_first;
      if (used.insert(port).second) return port++;
      ++port;
    }
    INVARIANT(false, "the host was counted to have a free port");
    return 0;
  }

  // Of one NUMA node, the one with the fewest that are enough; else of as few as can be. The first of each.
  std::vector<int> next_gpus(int count) {
    const auto is_near = [this](const Gpu& one) { return one.numa_node == host->gpus.front().numa_node; };
    const auto enough = gpus.begin() + count;
    if (std::all_of(host->gpus.begin(), host->gpus.end(), is_near)) {
      std::vector<int> first(gpus.begin(), enough);
      gpus.erase(gpus.begin(), enough);
      return first;
    }
    std::vector<int> taken;
    std::map<int, std::vector<int>> free;   // by node
    for (const int index : gpus) free[node_of(index)].push_back(index);
    while (static_cast<int>(taken.size()) < count) {
      const size_t wanted = static_cast<size_t>(count) - taken.size();
      const auto is_better = [wanted](const auto& a, const auto& b) {
        const size_t x = a.second.size(), y = b.second.size();
        return x >= wanted && y >= wanted ? x < y : x > y;
      };
      const auto from = std::min_element(free.begin(), free.end(), is_better);
      INVARIANT(from != free.end(), "the host was counted to have free GPUs");
      const size_t some = std::min(wanted, from->second.size());
      taken.insert(taken.end(), from->second.begin(), from->second.begin() + static_cast<std::ptrdiff_t>(some));
      free.erase(from);
    }
    std::sort(taken.begin(), taken.end());
    std::erase_if(gpus, [&](int index) { return std::binary_search(taken.begin(), taken.end(), index); });
    return taken;
  }
  int node_of(int index) const {
    const auto gpu = std::find_if(host->gpus.begin(), host->gpus.end(), [index](const Gpu& one) { return one.index == index; });
    return gpu == host->gpus.end() ? -1 : gpu->numa_node;
  }

  const Host* host;
  std::vector<int> gpus;
  std::set<int> used;
  int port;
  int next_local_rank = 0;
};

// Ranks run through the gang in Spec order; a role's replicas fill the hosts one after the other.
std::vector<Seat> seats_of(const ExperimentId& id, const Spec& spec,
                           const std::vector<Share>& shares) {
  std::vector<Dispenser> hosts;
  for (const Share& share : shares) hosts.emplace_back(*share.host);
  std::vector<Seat> seats;
  const std::vector<ReplicaId> replicas = replica_ids(id, spec);
  for (size_t role = 0; role < spec.roles.size(); ++role) {
    const Resources& each = spec.roles[role].resources;
    for (size_t h = 0; h < shares.size(); ++h) {
      for (int i = 0; i < shares[h].count[role]; ++i) {
        Seat seat;
        seat.rank = static_cast<int>(seats.size());
        seat.replica = replicas[seats.size()];
        seat.host = hosts[h].host->id;
        seat.host_name = hosts[h].host->name;
        seat.address = shares.size() == 1 ? "127.0.0.1" : hosts[h].host->address;
        seat.port = hosts[h].next_port();
        seat.local_rank = hosts[h].next_local_rank++;
        seat.cpus = each.cpus;
        seat.memory_bytes = each.memory_bytes;
        if (each.gpus > 0) seat.gpus = hosts[h].next_gpus(each.gpus);
        seats.push_back(std::move(seat));
      }
    }
  }
  INVARIANT(seats.size() == replicas.size(), "a gang is placed whole");
  return seats;
}

}  // namespace

std::optional<std::vector<Seat>> fit(const ExperimentId& id, const Spec& spec,
                                     const FreeHosts& hosts, const Choice& choice,
                                     double stretch) {
  if (choice.quota_left && !is_within(spec, *choice.quota_left)) return std::nullopt;
  const auto fit_on = [&](const FreeHosts& some) -> std::optional<std::vector<Seat>> {
    const auto shares = Fitting(spec, some, choice, stretch).run();
    if (!shares) return std::nullopt;
    return seats_of(id, spec, *shares);
  };
  if (!only_shows(spec)) return fit_on(hosts);
  for (const FreeHosts& nearer : nearest_first(spec, hosts, choice)) {
    if (auto seats = fit_on(nearer)) return seats;
  }
  return std::nullopt;
}

double stretch_needed(const ExperimentId& id, const Spec& spec, const FreeHosts& empty,
                      const Choice& choice) {
  if (fit(id, spec, empty, choice)) return 1;
  double most_cpus = 0;
  for (const FreeHost* free : empty.open()) {
    if (may_take(spec, *free->host, choice) && free->host->pool.empty()) most_cpus = std::max(most_cpus, free->host->cpus);
  }
  for (const RoleSpec& role : spec.roles) {
    if (role.resources.cpus > most_cpus + kCpuSlack) return 0;
  }
  if (!fit(id, spec, empty, choice, kStretchMax)) return 0;   // not for want of cpus
  for (double stretch = kStretchStep; stretch < kStretchMax; stretch *= kStretchStep) {
    if (fit(id, spec, empty, choice, stretch)) return stretch;
  }
  return kStretchMax;
}

Which obtainable(const FreeHosts& hosts, const Choice& choice) {
  if (choice.host.empty()) return Which::Obtainable;
  bool is_brought = false, is_like_others = false;
  for (const auto& [id, free] : hosts.all()) {
    const Host& host = *free.host;
    if (host.pool.empty() || !is_wanted(host, choice.host)) continue;
    (host.potential ? is_like_others : is_brought) = true;
  }
  return is_brought && !is_like_others ? Which::Connected : Which::Obtainable;
}

FreeHosts emptied(const FreeHosts& hosts, Which which) {
  FreeHosts empty;
  const bool all = which == Which::Known;
  std::set<std::string> pools;   // of which all that they may bring is here
  for (const auto& [id, free] : hosts.all()) {
    if (free.host->potential) pools.insert(free.host->pool);
  }
  for (const auto& [id, free] : hosts.all()) {
    const Host& host = *free.host;
    const bool pooled = !host.potential && pools.contains(host.pool);
    if (which == Which::Connected ? !free.open : pooled || (!all && !free.open && !host.potential)) continue;
    FreeHost whole;
    whole.host = &host;
    whole.open = true;
    whole.cpus = host.cpus;
    whole.memory_bytes = static_cast<int64_t>(host.memory_bytes);
    for (const Gpu& gpu : host.gpus) {
      if (all || gpu.busy.empty()) whole.gpus.push_back(gpu.index);
    }
    for (const auto& [port, since] : host.quarantined_ports) {
      if (!all) whole.ports_used.insert(port);
    }
    empty.put(std::move(whole));
  }
  return empty;
}

FreeHost free_host(const Model& model, const Host& host) {
  FreeHost free;
  free.host = &host;
  free.drained = model.drained.contains(host.id);
  free.open = host.connected && host.strays.empty() && !host.leaving && !free.drained;
  free.cpus = host.cpus;
  free.memory_bytes = static_cast<int64_t>(host.memory_bytes);
  for (const auto& [port, since] : host.quarantined_ports) free.ports_used.insert(port);
  free.port_next = host.port_first;
  std::set<int> gpus_used;
  const auto seated = model.seated.find(host.id);
  if (seated != model.seated.end()) {
    for (const ExperimentId& id : seated->second) {
      const Experiment& experiment = model.experiments.at(id);
      for (const Replica& replica : experiment.replicas) {
        if (replica.seat.host != host.id || !holds_seat(experiment, replica)) continue;
        free.cpus -= replica.seat.cpus;
        free.memory_bytes -= static_cast<int64_t>(replica.seat.memory_bytes);
        free.ports_used.insert(replica.seat.port);
        gpus_used.insert(replica.seat.gpus.begin(), replica.seat.gpus.end());
        ++free.seats;
      }
    }
  }
  for (const Gpu& gpu : host.gpus) {
    if (gpu.busy.empty() && !gpus_used.contains(gpu.index)) free.gpus.push_back(gpu.index);
  }
  std::sort(free.gpus.begin(), free.gpus.end());
  return free;
}

bool keeps_limits(const Spec& spec, const Host& host) {
  return (!spec.hard_cpus || host.caps_cpus) && (!spec.hard_memory || host.caps_memory);
}

Placement place(const ExperimentId& id, const Spec& spec, const FreeHosts& hosts,
                const Choice& choice) {
  if (auto seats = fit_largest(id, spec, hosts, choice)) {
    std::string notice = workers_text(spec, missing_workers(spec, *seats));
    return Placed{std::move(*seats), std::move(notice)};
  }
  const LeastGang least(spec);
  const double stretch = stretch_needed(id, least.spec(), emptied(hosts, obtainable(hosts, choice)), choice);
  if (choice.whole && spec.elastic && stretch > 0 && fit(id, least.spec(), hosts, choice, stretch)) {
    return Waits{"waits some seconds for more room, to begin with more of its workers"};
  }
  if (stretch > 1) {
    if (auto seats = fit(id, least.spec(), hosts, choice, stretch)) {
      const std::string size = workers_text(spec, missing_workers(spec, *seats));
      std::string notice = sharing_notice(spec, *seats, hosts, choice);
      return Placed{std::move(*seats), size.empty() ? notice : size + "; " + notice};
    }
  }
  return explain(id, least.spec(), hosts, choice, stretch);
}

Placement plan(const Model& model, const Spec& spec, const std::string& host) {
  const ExperimentId id{1, spec.is_set() ? 1u : 0u};
  const Choice choice{host, {}, nullptr};
  const std::vector<Spec> shapes = shapes_of(spec);
  for (const Spec& shape : shapes) {
    if (shape.roles.empty()) continue;
    auto placement = place(id, shape, model.free, choice);
    if (std::holds_alternative<Never>(placement)) return placement;
  }
  return place(id, shapes.empty() ? spec : shapes[shape_of(spec, id.member)], model.free, choice);
}

}  // namespace dtrain::daemon
