// TLS to a daemon on the network, by the key of a person. The one file of cli that knows it.
#pragma once

#include <cstdint>
#include <memory>

#include "cli/wire.h"
#include "schema/access_key.h"
#include "schema/result.h"

namespace dtrain::cli {

inline constexpr int64_t kDialTimeoutMs = 10'000;

// Unavailable: nobody listens there, or answers within the time. PermissionDenied: who does is not the daemon of this key.
Result<std::unique_ptr<Wire>> dial_by_tls(const AccessKey& key, int64_t timeout_ms = kDialTimeoutMs);

}  // namespace dtrain::cli
