// What the failure-policy of an experiment says of a failure. Inside the pure core only.
#pragma once

#include <string>
#include <vector>

#include "daemon/lifecycle_turn.h"

namespace dtrain::daemon {

// The first rule that fits what is known by now: what an exit has told of any of the gang, and how `cause` ended (null:
// all of them were silent).
struct FittingRule {
  const FailureRule* rule = nullptr;   // null: none does
  const Replica* printer = nullptr;    // the first in order that wrote such a line; null: it is not about lines
  std::string line = {};
};
FittingRule rule_that_fits(const Experiment& experiment, const Replica* cause);

std::string failure_text(const Failure& failure);   // for people, before it is judged

// Where what the rule is about has happened.
std::vector<HostId> hosts_of_failure(const Experiment& experiment, const FittingRule& fits, const Replica* cause);

// ---- silence: counted from the start of the last of them, and anew whenever a host of theirs, or the daemon, is back

void on_output_came(Turn& turn, const OutputCame& event);
// Output may have come, or will soon.
void hear(Experiment& experiment, TimeMs now);
// When it is looked at next; 0: never.
TimeMs silence_due_of(const Experiment& experiment);
// Whether they are to be ended for it, now that it was looked at. Who can't be heard, because a host of theirs is away, is
// not silent.
bool is_silent(Turn& turn, Experiment& experiment);
std::string silence_text(const Spec& spec);

}  // namespace dtrain::daemon
