// Which replica a command is run beside, as a person named it. Pure.
#pragma once

#include "daemon/scheduler.h"
#include "schema/ids.h"
#include "schema/result.h"

namespace dtrain::daemon {

struct ExecTarget {
  const Replica* replica = nullptr;   // as good as what it was found in
  uint32_t others = 0;                // that run, and that the same name means
};

// The first that runs, in the order of a Spec: the decider before others. NotFound: the experiment has no such replica;
// FailedPrecondition: none of them runs, and why not.
Result<ExecTarget> exec_target(const Scheduler::Known& known, const IdPattern& pattern);

// The first that has, or had, a host, whether it runs or not. FailedPrecondition: none of them.
Result<ExecTarget> placed_target(const Scheduler::Known& known, const IdPattern& pattern);

}  // namespace dtrain::daemon
