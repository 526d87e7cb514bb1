#include "runner/lent_host.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace dtrain::runner {

LentHost::LentHost(boost::asio::io_context& loop, std::chrono::milliseconds patience, Parts parts)
    : patience_(patience), parts_(std::move(parts)), alone_(loop) {
  lost();
}

void LentHost::found() {
  is_alone_ = false;
  alone_.cancel();
}

void LentHost::lost() {
  if (std::exchange(is_alone_, true)) return;
  alone_.expires_after(patience_);
  alone_.async_wait([this](boost::system::error_code error) {
    if (error || !std::exchange(is_alone_, false)) return;
    if (parts_.launches_held() > 0) return lost();
    fmt::print(stderr, "ends: no daemon for {} s, and nothing of one here\n",
               std::chrono::duration_cast<std::chrono::seconds>(patience_).count());
    parts_.end();
  });
}

void LentHost::leave() {
  fmt::print(stderr, "leaves: {} launches are to end first\n", parts_.launches_held());
  parts_.leave(parts_.end);
}

}  // namespace dtrain::runner
