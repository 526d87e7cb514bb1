#include "daemon/grpc_log.h"

#include <grpc/support/log.h>

#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>

namespace dtrain::daemon {

namespace {

constexpr auto kSaidAgainAfter = std::chrono::minutes(10);

void log_once(gpr_log_func_args* line) {
  using Clock = std::chrono::steady_clock;
  static std::mutex mutex;
  static std::string last;
  static Clock::time_point said_at;
  if (line->severity < GPR_LOG_SEVERITY_ERROR) return;
  const std::lock_guard lock(mutex);
  const auto now = Clock::now();
  if (last == line->message && now - said_at < kSaidAgainAfter) return;
  last = line->message;
  said_at = now;
  std::fprintf(stderr, "gRPC: %s\n", line->message);
}

}  // namespace

void log_grpc_errors() { gpr_set_log_function(&log_once); }

}  // namespace dtrain::daemon
