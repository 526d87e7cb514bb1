#include "runner/process_identity.h"

#include <cstdlib>
#include <optional>

#include "schema/small_file.h"
#include "schema/clock.h"

namespace dtrain::runner {

namespace {

// From its stat file: 0 for a zombie of which no thread goes on, and when there is no such file.
uint64_t start_ticks_of(const std::optional<std::string>& stat) {
  // The second field is the program's name in brackets and may hold anything; fields count from the
  // last bracket. The start time is field 22, so the 20th after the name.
  const size_t name_end = stat ? stat->rfind(')') : std::string::npos;
  if (name_end == std::string::npos) return 0;
  size_t at = name_end + 1;
  bool has_ended = false;
  for (int field = 3; field <= 22; ++field) {
    at = stat->find_first_not_of(' ', at);
    if (at == std::string::npos) return 0;
    const size_t end = stat->find(' ', at);
    if (field == 3) has_ended = (*stat)[at] == 'Z' || (*stat)[at] == 'X';
    if (field == 20 && has_ended && std::strtol(stat->c_str() + at, nullptr, 10) <= 1) return 0;
    if (field == 22) return std::strtoull(stat->c_str() + at, nullptr, 10);
    at = end;
  }
  return 0;
}

std::string stat_path(pid_t pid) { return "/proc/" + std::to_string(pid) + "/stat"; }

// Empty only while there is no descriptor to read it.
std::string this_boot() {
  static const std::string first = boot_id();
  return first.empty() ? boot_id() : first;
}

}  // namespace

ProcessIdentity identify(pid_t pid) {
  return {pid, start_ticks_of(read_small_file(stat_path(pid))), this_boot()};
}

Result<bool> check_alive(const ProcessIdentity& identity) {
  if (identity.pid <= 0 || identity.start_ticks == 0) return false;
  const auto stat = read_file(stat_path(identity.pid));
  if (!stat.ok() && stat.error().code == Code::ResourceExhausted) return stat.error();
  const std::string boot = this_boot();
  if (boot.empty()) return Error{Code::ResourceExhausted, "the boot id can't be read", ""};
  return stat.ok() && start_ticks_of(*stat) == identity.start_ticks && boot == identity.boot_id;
}

namespace {

// Of its first thread; '?' where that can't be told.
char state_of(const ProcessIdentity& identity) {
  if (identity.pid <= 0 || identity.start_ticks == 0) return '?';
  const auto stat = read_small_file(stat_path(identity.pid));
  if (start_ticks_of(stat) != identity.start_ticks) return '?';
  return (*stat)[stat->find_first_not_of(' ', stat->rfind(')') + 1)];
}

}  // namespace

bool is_stopped(const ProcessIdentity& identity) {
  const char state = state_of(identity);
  return state == 'T' || state == 't';
}

bool is_in_kernel(const ProcessIdentity& identity) { return state_of(identity) == 'D'; }

bool is_alive(const ProcessIdentity& identity) {
  const auto alive = check_alive(identity);
  return alive.ok() && *alive;
}

}  // namespace dtrain::runner
