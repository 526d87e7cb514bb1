// What both ends of a connection must agree on.
#pragma once

#include <cstdint>

namespace dtrain {

inline constexpr const char* kVersion = DTRAIN_VERSION;  // of the project, from CMake
// Raised when a message changes its meaning. The daemon refuses another number and says which side
// to upgrade.
inline constexpr uint32_t kProtocol = 5;

// No message between our processes is larger, and either end refuses one that is.
inline constexpr int kMessageBytesMax = 2 << 20;

}  // namespace dtrain
