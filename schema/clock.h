// The two clocks. Decisions use boottime_ms() and never unix_ms(), which is for people's eyes only.
#pragma once

#include <cstdint>
#include <string>

namespace dtrain {

// CLOCK_BOOTTIME: monotonic, and it counts while the machine sleeps.
int64_t boottime_ms();
// Wall clock; may jump.
int64_t unix_ms();
// The kernel's random id of this boot: durations persisted under another one are stale.
std::string boot_id();

}  // namespace dtrain
