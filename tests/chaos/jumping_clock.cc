// Loaded before the C library (LD_PRELOAD): the wall clock is wrong by as many seconds as the file that
// JUMPING_CLOCK names says, eight bytes that may change at any time; so are waits for a time of day, as when the clock is set under
// them. Other clocks are left alone.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <ctime>

namespace {

// Mapped once, so that a process without descriptors has the clock too.
std::atomic<int64_t>* map_seconds() {
  static std::atomic<int64_t> none{0};
  const char* path = std::getenv("JUMPING_CLOCK");
  const int fd = path == nullptr ? -1 : ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return &none;
  void* mapped = ::mmap(nullptr, sizeof none, PROT_READ, MAP_SHARED, fd, 0);
  ::close(fd);
  return mapped == MAP_FAILED ? &none : static_cast<std::atomic<int64_t>*>(mapped);
}

int64_t wrong_by() {
  static std::atomic<int64_t>* const seconds = map_seconds();
  return seconds->load(std::memory_order_relaxed);
}

using Syscall = long (*)(long, ...);
Syscall real_syscall() {
  static const auto found = reinterpret_cast<Syscall>(::dlsym(RTLD_NEXT, "syscall"));
  return found;
}

// In slices of the real clock, until the wrong one has come there.
long wait_until(uint32_t* word, int operation, uint32_t value, const timespec& until, void* second, uint32_t mask) {
  constexpr int64_t kSecond = 1'000'000'000, kSlice = 20'000'000;
  const auto in_ns = [](const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; };
  while (true) {
    timespec now;
    real_syscall()(SYS_clock_gettime, CLOCK_REALTIME, &now);
    const int64_t real_until = in_ns(until) - wrong_by() * kSecond, slice = in_ns(now) + kSlice;
    const int64_t end = std::clamp<int64_t>(real_until, 0, slice);
    const timespec wait{end / kSecond, end % kSecond};
    const long result = real_syscall()(SYS_futex, word, operation, value, &wait, second, mask);
    if (result == 0 || errno != ETIMEDOUT || end < slice) return result;
  }
}

}  // namespace

extern "C" long syscall(long number, ...) noexcept {
  va_list list;
  va_start(list, number);
  long a[6];
  for (long& each : a) each = va_arg(list, long);
  va_end(list);
  const auto command = static_cast<int>(a[1]) & FUTEX_CMD_MASK;
  const bool waits = number == SYS_futex && command == FUTEX_WAIT_BITSET;
  if (waits && (a[1] & FUTEX_CLOCK_REALTIME) != 0 && a[3] != 0) {
    return wait_until(reinterpret_cast<uint32_t*>(a[0]), static_cast<int>(a[1]), static_cast<uint32_t>(a[2]),
                      *reinterpret_cast<const timespec*>(a[3]), reinterpret_cast<void*>(a[4]),
                      static_cast<uint32_t>(a[5]));
  }
  return real_syscall()(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  const auto result = static_cast<int>(real_syscall()(SYS_clock_gettime, clock, time));
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += wrong_by();
  return result;
}

extern "C" int gettimeofday(timeval* time, void*) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  *time = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

extern "C" time_t time(time_t* where) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (where != nullptr) *where = now.tv_sec;
  return now.tv_sec;
}
