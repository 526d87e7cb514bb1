#include "engine/kernels/trial.h"

#include <algorithm>
#include <cstdlib>

namespace dtrain::engine {

namespace {

constexpr int kTriesOfEach = 3;   // of each: the shortest is one that nothing interrupted
constexpr int kFirstPause = 256, kLongestPause = 4096;   // calls
constexpr int kManyOthers = 64;

}  // namespace

Trial::Turn Trial::next(int ways, int64_t size) {
  const int known = ways == ways_ ? best_ : 0;
  if (ways != ways_ || std::abs(size - size_) > size_ / 4) {
    if (size_ != 0 && ++others_ < kManyOthers) return {known, false};
    *this = {};
    size_ = size;
    ways_ = ways;
    best_ = known;
  }
  others_ = 0;
  if (pause_ > 0 && --pause_ > 0) return {best_, false};
  return {tries_ % ways, true};
}

void Trial::took(int way, Duration duration) {
  auto& shortest = shortest_[static_cast<size_t>(way)];
  shortest = std::min(shortest, duration);
  if (++tries_ < kTriesOfEach * ways_) return;
  shortest_[0] = shortest_[0] * 9 / 10;
  const auto fastest = static_cast<int>(std::min_element(shortest_.begin(), shortest_.end()) - shortest_.begin());
  next_pause_ = fastest == best_ && next_pause_ > 0 ? std::min(2 * next_pause_, kLongestPause) : kFirstPause;
  best_ = fastest;
  pause_ = next_pause_;
  tries_ = 0;
  shortest_.fill(Duration::max());
}

}  // namespace dtrain::engine
