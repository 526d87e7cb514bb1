// How fast gradients are summed and shared among processes of this host, beside what its memory can
// do.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "schema/result.h"

namespace dtrain::engine {

struct ExchangeRate {
  int64_t bytes = 0;            // of an arena
  double exchange_seconds = 0;  // until everyone has the sum of all
  double memcpy_seconds = 0;    // of as many bytes, by one process alone
  double exchange_bytes_per_second() const { return double(bytes) / exchange_seconds; }
  double memcpy_bytes_per_second() const { return double(bytes) / memcpy_seconds; }
};

// Medians of interleaved rounds. Forks `processes` - 1 others: call it while there is one thread.
// Through TCP each of them pretends to be a host.
Result<std::vector<ExchangeRate>> bench_exchange(int processes, bool tcp,
                                                 std::span<const int64_t> sizes_bytes);

}  // namespace dtrain::engine
