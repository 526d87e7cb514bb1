// How a gang is divided among hosts: how many replicas of each role go where. Pure.
#pragma once

#include <optional>
#include <vector>

#include "daemon/placement.h"

namespace dtrain::daemon {

// What one host takes of a gang: how many of each role, in Spec order.
struct Share {
  const FreeHost* host;
  std::vector<int> count;
};

// All of it, or nothing; `stretch` as fit() has it. Good as long as `hosts` are.
std::optional<std::vector<Share>> shares_of(const Spec& spec, const FreeHosts& hosts, const Choice& choice, double stretch);

}  // namespace dtrain::daemon
