// How many calls about outputs a host makes at once. Its runner waits for its turn; the daemon refuses what is more.
#pragma once

#include <cstddef>

namespace dtrain {

inline constexpr std::size_t kOutputWritesAtOnce = 4;   // may take long: what else is asked for does not wait for them
inline constexpr std::size_t kOtherOutputCallsAtOnce = 4;
inline constexpr std::size_t kOutputCallsAtOnce = kOutputWritesAtOnce + kOtherOutputCallsAtOnce;

}  // namespace dtrain
