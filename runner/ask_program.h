// What a program of the host answers when it is started and waited for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runner/environment.h"
#include "runner/process.h"
#include "schema/result.h"

namespace dtrain::runner {

struct Answer {
  std::string said;       // what it printed, 64 KiB of it at most, without line ends at its end
  bool succeeded = false; // by itself, with status 0
};

// It is killed when it has not answered by `limit_ms`, with all it started: FailedPrecondition "no answer in 10 s", as
// is what kept it from running. ResourceExhausted: no process or descriptor left.
Result<Answer> ask_program(const std::vector<std::string>& argv, const Environment& env, int64_t limit_ms);
// Likewise, but what kept it from running is the error of spawn(). `request` names no output.
Result<Answer> ask_program(SpawnRequest request, int64_t limit_ms);

}  // namespace dtrain::runner
