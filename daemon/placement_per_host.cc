#include "daemon/placement_per_host.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain::daemon {

namespace {

// Those that are counted together.
struct Limited {
  std::vector<RoleSpec> roles;
  int count = 0;
  int per_host = 0;
  int hosts() const { return (count + per_host - 1) / per_host; }
};

std::vector<Limited> limited_of(const Spec& spec) {
  std::vector<Limited> all;
  for (const RoleSpec& role : spec.roles) {
    if (role.per_host == 0) continue;
    const bool is_new = all.empty() || counted_as(all.back().roles.back().role) != counted_as(role.role);
    if (is_new) all.emplace_back();
    all.back().roles.push_back(role);
    all.back().count += role.count;
    all.back().per_host = role.per_host;
  }
  return all;
}

Spec gang_of(const Spec& spec, std::vector<RoleSpec> roles) {
  Spec gang;
  gang.roles = std::move(roles);
  gang.hard_cpus = spec.hard_cpus;
  gang.hard_memory = spec.hard_memory;
  return gang;
}

// The first `most` of them, the master before the others.
std::vector<RoleSpec> some_of(const Limited& limited, int most) {
  std::vector<RoleSpec> some;
  for (RoleSpec role : limited.roles) {
    role.count = std::min(role.count, most);
    most -= role.count;
    if (role.count > 0) some.push_back(std::move(role));
  }
  return some;
}

// For how many of them alone there is room.
int room_for(const ExperimentId& id, const Spec& spec, const Limited& limited, const FreeHosts& hosts, const Choice& choice) {
  int least = 0, most = limited.count;
  while (least < most) {
    const int middle = least + (most - least + 1) / 2;
    if (fit(id, gang_of(spec, some_of(limited, middle)), hosts, choice)) {
      least = middle;
    } else {
      most = middle - 1;
    }
  }
  return least;
}

Choice wherever_they_reach(const Choice& choice) {
  Choice wider = choice;
  wider.quota_left.reset();
  wider.as_if_addressed = true;   // that it can't be spread is said apart
  return wider;
}

std::string name_of(const Limited& limited) {
  const Role role = counted_as(limited.roles.back().role);
  return role == Role::Ps ? "parameter servers" : fmt::format("{}s", to_string(role));
}

std::string needs_text(const Limited& limited) {
  const std::string hosts = fmt::format("needs {} host{} for its ", limited.hosts(), limited.hosts() == 1 ? "" : "s");
  if (limited.per_host == 1) return fmt::format("{}{}, one each", hosts, name_of(limited));
  return fmt::format("{}{} {}, at most {} each", hosts, limited.count, name_of(limited), limited.per_host);
}

std::string room_text(const Limited& limited, int room) {
  if (limited.per_host > 1) return fmt::format("there is room for {}", room);
  return room == 0 ? "none has room" : fmt::format("{} {} room", room, room == 1 ? "has" : "have");
}

std::string known_text(const Limited& limited, int room, int known) {
  if (known < limited.hosts()) return known == 1 ? "there is one" : fmt::format("there are {}", known);
  if (limited.per_host > 1) return fmt::format("on the {} that there are is room for {}", known, room);
  return fmt::format("of the {} that there are {} {} large enough", known, room, room == 1 ? "is" : "are");
}

}  // namespace

Spec without_limits(const Spec& spec) {
  Spec less = spec;
  for (RoleSpec& role : less.roles) role.per_host = 0;
  return less;
}

bool is_short_of_hosts(const ExperimentId& id, const Spec& spec, const FreeHosts& hosts, const Choice& choice) {
  if (limited_of(spec).empty()) return false;
  const Choice wider = wherever_they_reach(choice);
  const bool are_idle = std::all_of(hosts.open().begin(), hosts.open().end(), [](const FreeHost* free) { return free->seats == 0; });
  const Spec anywhere = without_limits(spec);
  if (fit(id, anywhere, hosts, wider) || (are_idle && stretch_needed(id, anywhere, hosts, wider) > 0)) return true;
  Spec next_to_nothing = gang_of(spec, spec.roles);
  for (RoleSpec& role : next_to_nothing.roles) role.resources = {-1e6, 0, 0};   // fits where less than nothing is free
  return !fit(id, next_to_nothing, hosts, wider) && fit(id, without_limits(next_to_nothing), hosts, wider);
}

std::string short_of_hosts(const ExperimentId& id, const Spec& spec, const FreeHosts& hosts, const Choice& choice, bool are_all) {
  const std::vector<Limited> all = limited_of(spec);
  const Choice wider = wherever_they_reach(choice);
  for (const Limited& limited : all) {
    const int room = room_for(id, spec, limited, hosts, wider);
    if (room == limited.count) continue;
    const std::string left = are_all ? known_text(limited, room, static_cast<int>(hosts.open().size())) : room_text(limited, room);
    return fmt::format("{}; {}", needs_text(limited), left);
  }
  const auto most = std::max_element(all.begin(), all.end(), [](const Limited& a, const Limited& b) { return a.hosts() < b.hosts(); });
  return needs_text(*most) + "; there is room for them, but not for the others beside them";
}

}  // namespace dtrain::daemon
