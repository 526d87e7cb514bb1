#include "runner/lent_host.h"

#include <fmt/format.h>

#include <cstdio>
#include <utility>

namespace dtrain::runner {

LentHost::LentHost(boost::asio::io_context& loop, Agent& agent, std::function<void()> end)
    : agent_(agent), end_(std::move(end)), patience_(loop) {}

void LentHost::on_connected() { patience_.cancel(); }

void LentHost::on_disconnected() {
  patience_.expires_after(kPatience);
  patience_.async_wait([this](boost::system::error_code error) {
    if (error) return;
    if (agent_.launches_held() > 0) return on_disconnected();
    fmt::print(stderr, "ends: no daemon for {} minutes, and nothing of one here\n", kPatience.count());
    end_();
  });
}

void LentHost::leave() {
  fmt::print(stderr, "leaves: {} launches are to end first\n", agent_.launches_held());
  agent_.leave(end_);
}

}  // namespace dtrain::runner
