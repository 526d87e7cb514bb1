// Follows an experiment on the screen until it is over, a person leaves, or nobody reads.
//
// One Watch stream; when the daemon goes away it is opened again where it broke off. Signals are
// waited for here: SIGINT detaches, or kills the experiment when it is tied to this terminal.
#pragma once

#include <cstdint>
#include <memory>

#include "cli/command.h"
#include "cli/connection.h"
#include "cli/ending.h"
#include "cli/printer.h"
#include "cli/signals.h"
#include "cli/terminal.h"

namespace dtrain::cli {

struct WatchOptions {
  pb::WatchRequest request;
  std::unique_ptr<Printer> printer;  // null: nothing is printed, only the end is waited for
  std::unique_ptr<Signals> tied;     // these and a closed output kill it; null: leaving does not
  bool fold = false;                 // one line instead of the ends that follow from a failure
  int64_t until_ms = 0;              // by boottime_ms(): what is not over then is left; 0: no limit
};

enum class WatchHow {
  Over,        // nothing follows; `outcome` is the experiment as it is now
  Detached,    // a person pressed Ctrl-C
  Killed,      // tied: this terminal ended it; `outcome` is what came of it
  NobodyReads,  // standard output was closed
  TimeOver      // it was not over at `until_ms`
};

struct WatchEnd {
  WatchHow how = WatchHow::Over;
  pb::ExperimentInfo
      outcome;  // only with Over and Killed, and then perhaps empty when not followed
  Ending ending;
  Status written = ok();  // tied: whether all that it printed could be written; else that is an error of watch()
};

// `connection` is replaced when the daemon had to be reached again. Messages about that go to
// stderr.
Result<WatchEnd> watch(Connection& connection, const CommandContext& context, WatchOptions options);

// After Ctrl-C: the experiment goes on, but what was to be told is not there, or a part of it.
inline constexpr int kInterrupted = 130;

// What `train`, `rerun` and `wait` return for an experiment that is over (0 FINISHED, 130 KILLED,
// else what the cause exited with).
int exit_code_of(const pb::ExperimentInfo& outcome);

// To stderr, for a person who left, or whose `| head` did: it goes on, how to come back, how to end it.
void say_detached(const std::string& id, WatchHow how);

}  // namespace dtrain::cli
