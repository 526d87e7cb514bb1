// For the log: what others can make us say as often as they like.
#pragma once

#include <chrono>
#include <map>
#include <string>

namespace dtrain::daemon {

// Says the same once in ten minutes, and in that time no more than so many different things.
// Thread: one at a time.
class Seldom {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr auto kAgainAfter = std::chrono::minutes(10);
  static constexpr size_t kTextsMax = 32;

  bool is_news(const std::string& text, Clock::time_point now) {
    std::erase_if(said_at_, [now](const auto& said) { return now - said.second >= kAgainAfter; });
    if (said_at_.size() == kTextsMax) return false;
    return said_at_.emplace(text, now).second;
  }

 private:
  std::map<std::string, Clock::time_point> said_at_;
};

}  // namespace dtrain::daemon
