// The static libstdc++ of GCC 12 wants arc4random, which a C library has from 2.36 on. With this one in its place programs
// built there run where there is 2.34.
#include <sys/random.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

extern "C" __attribute__((visibility("hidden"))) uint32_t arc4random() noexcept {
  uint32_t number = 0;
  while (::getrandom(&number, sizeof(number), 0) != sizeof(number)) {
    if (errno != EINTR) std::abort();
  }
  return number;
}
