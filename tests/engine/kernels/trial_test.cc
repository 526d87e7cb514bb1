// Which way a product is computed, by how long each way took.
#include <doctest/doctest.h>

#include <vector>

#include "engine/kernels/trial.h"

namespace dtrain::engine {
namespace {

constexpr int64_t kSize = 1000;

// What next() says, ways taking so long.
class Product {
 public:
  explicit Product(std::vector<int> microseconds) : microseconds_(std::move(microseconds)) {}

  Trial::Turn compute(int64_t size = kSize) {
    const Trial::Turn turn = trial_.next(static_cast<int>(microseconds_.size()), size);
    if (turn.is_timed) trial_.took(turn.way, std::chrono::microseconds(microseconds_[static_cast<size_t>(turn.way)]));
    return turn;
  }
  // How many are computed before one is timed again, all by `way`.
  int pause(int way) {
    for (int calls = 0;; ++calls) {
      const Trial::Turn turn = compute();
      if (turn.is_timed) return calls;
      CHECK(turn.way == way);
    }
  }
  void finish_trial(int timed_before) {
    for (int i = timed_before; i < 3 * static_cast<int>(microseconds_.size()); ++i) CHECK(compute().is_timed);
  }
  void change(std::vector<int> microseconds) { microseconds_ = std::move(microseconds); }

 private:
  Trial trial_;
  std::vector<int> microseconds_;
};

TEST_CASE("each way is tried three times in turns, and the fastest is taken") {
  Product product({300, 100, 200});
  for (int i = 0; i < 9; ++i) {
    const Trial::Turn turn = product.compute();
    CHECK(turn.is_timed);
    CHECK(turn.way == i % 3);
  }
  for (int i = 0; i < 100; ++i) {
    const Trial::Turn turn = product.compute();
    CHECK_FALSE(turn.is_timed);
    CHECK(turn.way == 1);
  }
}

TEST_CASE("another way than the first must be faster by more than a tenth") {
  Product product({300, 271});
  product.finish_trial(0);
  CHECK(product.pause(0) > 0);
  product.change({300, 269});
  product.finish_trial(1);
  CHECK(product.pause(1) > 0);
}

TEST_CASE("of each way the shortest counts, whatever held up the others") {
  Trial trial;
  for (const int took : {300, 900, 5000, 200, 300, 800}) {
    const Trial::Turn turn = trial.next(2, kSize);
    REQUIRE(turn.is_timed);
    trial.took(turn.way, std::chrono::microseconds(took));
  }
  CHECK(trial.next(2, kSize).way == 1);
}

TEST_CASE("it is tried again, ever less often while it comes to the same") {
  Product product({300, 100});
  product.finish_trial(0);
  const int first = product.pause(1);
  product.finish_trial(1);
  CHECK(product.pause(1) == 2 * first + 1);
  product.finish_trial(1);
  int longest = 0, before = 0;
  do {
    before = longest;
    longest = product.pause(1);
    product.finish_trial(1);
  } while (longest > before);
  CHECK(longest == before);
  CHECK(longest > 8 * first);

  product.change({100, 300});
  product.pause(1);
  product.finish_trial(1);
  CHECK(product.pause(0) == first);
}

TEST_CASE("a few products of another size are computed as the others, many are tried by themselves") {
  Product product({300, 100});
  product.finish_trial(0);
  product.change({100, 300});
  for (int i = 0; i < 10; ++i) {
    const Trial::Turn turn = product.compute(kSize / 2);
    CHECK_FALSE(turn.is_timed);
    CHECK(turn.way == 1);
  }
  CHECK_FALSE(product.compute().is_timed);
  int untimed = 0;
  while (!product.compute(kSize / 2).is_timed) ++untimed;
  CHECK(untimed == 63);
  for (int i = 0; i < 5; ++i) CHECK(product.compute(kSize / 2).is_timed);
  CHECK(product.compute(kSize / 2).way == 0);
}

TEST_CASE("nearly the same size is the same") {
  Product product({300, 100});
  for (int i = 0; i < 6; ++i) CHECK(product.compute(kSize + i * 50).is_timed);
  CHECK_FALSE(product.compute(kSize - 200).is_timed);
  CHECK(product.compute(kSize - 200).way == 1);
}

TEST_CASE("where sizes take turns, so that no trial of either ends, the fastest so far stays") {
  Product product({300, 100});
  product.finish_trial(0);
  int slow = 0;
  constexpr int kCalls = 66, kTurns = 50;
  for (int turn = 0; turn < kTurns; ++turn) {
    for (int i = 0; i < kCalls; ++i) slow += product.compute(turn % 2 == 0 ? kSize / 2 : kSize).way == 0;
  }
  CHECK(slow < kCalls * kTurns / 20);
}

}  // namespace
}  // namespace dtrain::engine
