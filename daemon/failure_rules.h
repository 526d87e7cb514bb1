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
  size_t number = 0;                   // of that rule
  const Replica* printer = nullptr;    // who wrote such a line; null: it is not about lines
  std::string line = {};               // empty: it is not known any more
};
FittingRule rule_that_fits(const Experiment& experiment, const Replica* cause);

std::string failure_text(const Failure& failure);   // for people, before it is judged

// Where what the rule is about has happened.
std::vector<HostId> hosts_of_failure(const Experiment& experiment, const FittingRule& fits, const Replica* cause);

// Of what an exit tells as much as will be asked for: of each rule one line of the whole gang.
void keep_first_lines(const Experiment& experiment, Replica& replica);

// ---- silence: counted from the start of the last of them, and anew whenever a host of theirs, or the daemon, is back

void on_output_came(Turn& turn, const OutputCame& event);
// Output may have come, or will soon.
void hear(Experiment& experiment, TimeMs now);
// When it is looked at next; 0: never.
TimeMs silence_due_of(const Experiment& experiment);
// Looks at it, if it is time to: whether they are to be ended for it. Nobody is silent while one of them is being launched again,
// nor before each of their hosts has said something after that time, for what was printed before comes first: a host may be away, a
// runner or the daemon itself may have been stopped, or the machine have slept.
bool look_for_silence(Turn& turn, Experiment& experiment);
// Output that comes so soon after other output need not be told of.
int64_t unheard_ms(const Spec& spec);
std::string silence_text(const Spec& spec);

}  // namespace dtrain::daemon
