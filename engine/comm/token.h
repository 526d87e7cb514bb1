// Numbers by which a process knows what is its own from what another, or an earlier one, left behind.
#pragma once

#include <sys/random.h>

#include <cstdint>

namespace dtrain::engine {

// Never 0, and by chance never the same twice.
inline uint64_t new_token() {
  uint64_t token = 0;
  while (::getrandom(&token, sizeof(token), 0) != sizeof(token)) {
  }
  return token | 1;
}

}  // namespace dtrain::engine
