// A process that can't be mistaken for a later one with the same pid.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "schema/result.h"

namespace dtrain::runner {

struct ProcessIdentity {
  pid_t pid = 0;
  uint64_t start_ticks = 0;  // field 22 of /proc/<pid>/stat
  std::string boot_id;
  bool operator==(const ProcessIdentity&) const = default;
};
ProcessIdentity identify(pid_t pid);             // start_ticks 0 when it is gone
bool is_alive(const ProcessIdentity& identity);  // same boot, same start time, not a zombie
// The same, for whoever would end what it leaves: ResourceExhausted when there is no descriptor to look.
Result<bool> check_alive(const ProcessIdentity& identity);
// By a signal or a debugger: it does nothing until it is continued. False when it can't be looked at.
bool is_stopped(const ProcessIdentity& identity);
// In the kernel, where only KILL reaches it: for a disk, mostly, a server's files, or a child that it begins. Likewise.
bool is_in_kernel(const ProcessIdentity& identity);

}  // namespace dtrain::runner
