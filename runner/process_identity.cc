#include "runner/process_identity.h"

#include <cstdlib>

#include "runner/small_file.h"
#include "schema/clock.h"

namespace dtrain::runner {

ProcessIdentity identify(pid_t pid) {
  static const std::string this_boot = boot_id();
  ProcessIdentity identity{pid, 0, this_boot};
  const auto stat = read_small_file("/proc/" + std::to_string(pid) + "/stat");
  // The second field is the program's name in brackets and may hold anything; fields count from the
  // last bracket. The start time is field 22, so the 20th after the name.
  const size_t name_end = stat ? stat->rfind(')') : std::string::npos;
  if (name_end == std::string::npos) return identity;
  size_t at = name_end + 1;
  for (int field = 3; field <= 22; ++field) {
    at = stat->find_first_not_of(' ', at);
    if (at == std::string::npos) return identity;
    const size_t end = stat->find(' ', at);
    if (field == 3 && ((*stat)[at] == 'Z' || (*stat)[at] == 'X')) return identity;
    if (field == 22) identity.start_ticks = std::strtoull(stat->c_str() + at, nullptr, 10);
    at = end;
  }
  return identity;
}

bool is_alive(const ProcessIdentity& identity) {
  if (identity.pid <= 0 || identity.start_ticks == 0) return false;
  const ProcessIdentity now = identify(identity.pid);
  return now.start_ticks == identity.start_ticks && now.boot_id == identity.boot_id;
}

}  // namespace dtrain::runner
