// What --priority, --preemptible and --suspended say: when it is its turn.
#pragma once

#include <cstdint>

#include "cli/command.h"
#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain::cli {

struct TurnWords {
  static constexpr uint64_t kUnset = UINT64_MAX;
  uint64_t priority = kUnset;
  bool preemptible = false;
  bool suspended = false;
  bool are_given() const { return priority != kUnset || preemptible || suspended; }
};

void declare_turn(Options& options, TurnWords& words);
// Each takes the place of its key of the YAML. InvalidArgument: there is no such priority.
Status put_turn(const TurnWords& words, Spec& spec);

}  // namespace dtrain::cli
