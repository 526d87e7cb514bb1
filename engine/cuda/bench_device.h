// How fast one GPU does what a step of GPT-2 consists of, beside what it can do at most: products and copies
// measured in the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "schema/result.h"

namespace dtrain::engine::cuda {

struct DeviceBench {
  int64_t samples = 64, context = 1024, width = 768, heads = 12, vocabulary = 50257;
  int64_t parameters = 124'439'808;   // that are updated
  int64_t largest_product = 8192;     // square, for the ceiling
  int64_t copied_bytes = int64_t{1} << 30;
  int rounds = 7;
};

struct DeviceRate {
  std::string name;
  double seconds = 0;     // the median of the rounds, which go in turns
  double operations = 0;  // multiplications and additions; 0: it is bound by memory
  double bytes = 0;       // read and written at least
  double share = 0;       // of the ceiling: of operations, or of bytes a second
};

// `said` hears of the device's name first, then of each row; the first two are the ceilings.
Status bench_device(const DeviceBench& options, const std::function<void(const std::string& device)>& began,
                    const std::function<void(const DeviceRate&)>& said);

}  // namespace dtrain::engine::cuda
