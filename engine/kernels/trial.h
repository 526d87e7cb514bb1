// Which of several ways to compute a product is the fastest: each is tried a few times in turns, and again after a while, for it depends
// on the processor, and on how much of the matrices is zero by then. All ways must come to the same bits; but what is zero times what is
// not finite is no number only where it is not left out, so that which step a training that breaks ends in may differ.
//
// Owner and thread: one participant, of one product of its model.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace dtrain::engine {

class Trial {
 public:
  static constexpr int kMostWays = 3;
  using Duration = std::chrono::steady_clock::duration;

  // compute(way), of one of the first `ways`. Another than the first must be faster by a tenth, for it takes more of the caches. Products of
  // quite another size (a test's, beside a training's) are computed by what was the fastest, unless many of them come.
  template <class Compute>
  void run(int ways, int64_t size, const Compute& compute) {
    const auto [way, is_timed] = next(ways, size);
    if (!is_timed) return compute(way);
    const auto begin = std::chrono::steady_clock::now();
    compute(way);
    took(way, std::chrono::steady_clock::now() - begin);
  }

  // run() in two steps: took() is to follow where it is timed.
  struct Turn {
    int way;
    bool is_timed;
  };
  Turn next(int ways, int64_t size);
  void took(int way, Duration duration);

 private:
  int64_t size_ = 0;
  int ways_ = 0, best_ = 0, tries_ = 0, others_ = 0;
  int pause_ = 0, next_pause_ = 0;   // in calls; without one it is being tried
  std::array<Duration, kMostWays> shortest_{Duration::max(), Duration::max(), Duration::max()};
};

}  // namespace dtrain::engine
