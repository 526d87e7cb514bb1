#include "cli/redial.h"

#include <algorithm>
#include <cstdio>

#include "cli/errors.h"
#include "cli/remote.h"

namespace dtrain::cli {

bool Redial::may_resume(Code code) {
  return code == Code::Unavailable || code == Code::Cancelled || code == Code::Aborted ||
         code == Code::ResourceExhausted;
}

Result<bool> Redial::try_again(const std::string& id) {
  wait_readable(-1, signals_.fd(), wait_ms_);
  // The first try is quick and silent: the daemon may only have ended a stream that fell behind.
  wait_ms_ = std::min(2 * wait_ms_, kWaitMaxMs);
  auto again = connect(connection_.home(), Autostart::IfNeeded, context_);
  if (again.ok()) {
    connection_ = std::move(again).value();
    return true;
  }
  const Error& error = again.error();
  // Stopped by hand, another version, a full disk, a config.yml with a mistake: all of that may pass
  // while a person works on it.
  if (error.code == Code::FailedPrecondition || error.code == Code::ResourceExhausted ||
      error.code == Code::Internal) {
    say(error);
    return false;
  }
  if (error.code != Code::Unavailable && error.code != Code::DeadlineExceeded) return again.error();
  if (!announced_) {
    // Of another machine it may be the way there.
    const std::string why = remote_machine().empty() ? "" : " (" + error.message + ")";
    cli::say(fmt::format("dtrain: the daemon is away{}; {} is not affected, connecting again", why, id));
    announced_ = true;
  }
  return false;
}

void Redial::say(const Error& error) {
  if (said_ != error.message) print_error(error, false);
  said_ = error.message;
}

void Redial::reset() {
  wait_ms_ = kWaitFirstMs;
  announced_ = false;
  said_.clear();
}

}  // namespace dtrain::cli
