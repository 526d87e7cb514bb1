// Roles of which a host takes no more than so many (RoleSpec::per_host): whether that is why a gang has no place. Pure.
#pragma once

#include <string>

#include "daemon/placement.h"

namespace dtrain::daemon {

// Whether the gang finds no place for want of hosts: without those limits there would be one, or there are too few hosts
// for them whatever these have.
bool is_short_of_hosts(const ExperimentId& id, const Spec& spec, const FreeHosts& hosts, const Choice& choice);

// Of such a gang: "needs 4 hosts for its workers, one each; 2 have room", or, where `hosts` are all that are known, as
// they are when empty, "...; there are 2".
std::string short_of_hosts(const ExperimentId& id, const Spec& spec, const FreeHosts& hosts, const Choice& choice, bool are_all);

// The same gang, of which a host takes whatever it has room for.
Spec without_limits(const Spec& spec);

}  // namespace dtrain::daemon
