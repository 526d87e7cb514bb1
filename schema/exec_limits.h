// How much the ends of `dtrain exec` and of a forwarded connection may say, as all between them must agree on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace dtrain {

// Of input, and of output, that is on its way: what the other end has not taken yet. Whoever is slower sets the pace.
inline constexpr uint64_t kExecWindowBytes = 512 << 10;
// Of one message of either.
inline constexpr size_t kExecPartBytes = 64 << 10;
// Of a command with its arguments: it reaches the keeper as one packet.
inline constexpr size_t kExecCommandBytesMax = 96 << 10;
// At once on one host. Each is a call beside the daemon's stream.
inline constexpr size_t kExecsMost = 32;
inline constexpr size_t kForwardsMost = 256;
// At once on a host: of those who fetch what replicas left.
inline constexpr size_t kLeftsMost = 8;
// Of one `dtrain port-forward`: a host hears of a new one before it has heard that others have ended.
inline constexpr size_t kForwardsOfOneMost = kForwardsMost - 32;

}  // namespace dtrain
