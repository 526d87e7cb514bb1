#include "schema/clock.h"

#include <ctime>
#include <fstream>

namespace dtrain {

namespace {

int64_t read_clock_ms(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace

int64_t boottime_ms() { return read_clock_ms(CLOCK_BOOTTIME); }

int64_t unix_ms() { return read_clock_ms(CLOCK_REALTIME); }

std::string boot_id() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

}  // namespace dtrain
