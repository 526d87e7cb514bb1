// What time it is in views.
#pragma once

#include <cstdint>

namespace dtrain::cli {

inline constexpr uint64_t kNow = 1'700'000'000'000;  // 2023-11-14T22:13:20Z

}  // namespace dtrain::cli
