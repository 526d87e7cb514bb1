#include "daemon/grpc_log.h"

#include <grpc/support/log.h>

#include <cstdio>
#include <mutex>

#include "daemon/seldom.h"

namespace dtrain::daemon {

namespace {

void log_once(gpr_log_func_args* line) {
  static std::mutex mutex;
  static Seldom seldom;
  if (line->severity < GPR_LOG_SEVERITY_ERROR) return;
  const std::lock_guard lock(mutex);
  if (seldom.is_news(line->message, Seldom::Clock::now()))
    std::fprintf(stderr, "gRPC: %s\n", line->message);
}

}  // namespace

void log_grpc_errors() { gpr_set_log_function(&log_once); }

}  // namespace dtrain::daemon
