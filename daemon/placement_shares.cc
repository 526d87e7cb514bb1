#include "daemon/placement_shares.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

namespace dtrain::daemon {

namespace {

// The replicas of one role that still need a host.
struct Need {
  const RoleSpec* role;
  int left;
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
    Room room = free.room();
    if (stretch_ > 1) room.cpus = free.seats == 0 ? free.host->cpus * stretch_ : 0;
    if (choice_.kept_free == nullptr) return room;
    const auto kept = choice_.kept_free->find(free.host->id);
    return kept == choice_.kept_free->end() ? room : least_of(room, kept->second);
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
    for (const Need& need : needs_) sum += room_of(need.role->resources) * need.left;
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
      left -= room_of(each) * count;
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
      all += most_of(so_far.left.back(), {});   // it may have less than nothing
    }
    const size_t once = so_far.shares.size() * static_cast<size_t>(spec_.replica_count());
    if (once > kLooksMax || !fits(all, room_of(spec_))) return std::nullopt;
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
    const Room need = room_of(each);
    std::vector<std::pair<double, size_t>> hosts;
    for (size_t at = 0; at < so_far.shares.size(); ++at) {
      if (so_far.looks == 0) return false;
      --so_far.looks;
      if (!fits(so_far.left[at], need) || limit_left(so_far.shares[at], role) <= 0) continue;
      hosts.emplace_back(-least_left(so_far.left[at], *so_far.shares[at].host->host, each), at);
    }
    std::sort(hosts.begin(), hosts.end());
    for (const auto& [rest, at] : hosts) {
      ++so_far.shares[at].count[role];
      so_far.left[at] -= need;
      if (spread(so_far, nth, placed + 1)) return true;
      --so_far.shares[at].count[role];
      so_far.left[at] += need;
      if (so_far.looks == 0) return false;
    }
    return false;
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

}  // namespace

std::optional<std::vector<Share>> shares_of(const Spec& spec, const FreeHosts& hosts, const Choice& choice, double stretch) {
  return Fitting(spec, hosts, choice, stretch).run();
}

}  // namespace dtrain::daemon
