// A Crew is several threads that compute the operations of one participant together, each a part of every
// operation. Participants that compute a batch's samples apart read all parameters and exchange all
// gradients; a crew shares a layer's columns instead, so that each parameter and its gradient stay in one
// processor's cache. That pays where parameters are many beside the samples of a step.
//
// Owner and thread: one participant. Its calls come close together, so those who wait stay awake for a while,
// unless there are more of them than processors.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "engine/layout.h"

namespace dtrain::engine {

class Crew {
 public:
  // `hands` counts the caller of run() too: one less threads are started.
  explicit Crew(int hands);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  int hands() const { return static_cast<int>(threads_.size()) + 1; }

  // part(i), of each i in [0, hands()); the caller does the first. All is done, and can be read, when it
  // returns. What a part throws the caller gets then; of several, one.
  template <class Part>
  void run(const Part& part) {
    run_all({&part, [](const void* of, int i) { (*static_cast<const Part*>(of))(i); }});
  }

  // The columns of a matrix are shared in so many or more. A hand begins with the same ones in every operation, so that
  // what it wrote of them is in its cache.
  static constexpr int64_t kColumns = 64;

  // part(range): `count` in ranges that begin at multiples of `step`, five a hand if it goes. A hand begins with
  // those that are its own every time, and goes on with what others have not come to: a processor may have less
  // time than another. The last ones are short, for so long may the others wait for the last hand. Without a crew,
  // or with too little for `least` each, the caller does it all.
  template <class Part>
  static void share(Crew* crew, int64_t count, int64_t step, int64_t least, const Part& part) {
    share_prepared(crew, count, step, least, [&] { return std::cref(part); });
  }
  // The same, with a part of its own for each hand: prepare() gives it, before the hand's first range.
  template <class Prepare>
  static void share_prepared(Crew* crew, int64_t count, int64_t step, int64_t least, const Prepare& prepare) {
    if (crew == nullptr || count < least * crew->hands()) {
      prepare()(Range{0, count});
      return;
    }
    const int64_t hands = crew->hands(), steps = (count + step - 1) / step;
    const int64_t all = std::min({steps, hands * kPiecesOfHand, kMostPieces});
    const bool in_eighths = steps >= kEighths * hands && all == hands * kPiecesOfHand;
    const auto begin_of = [&](int64_t i) {
      if (!in_eighths) return steps * i / all;
      return steps * (i / kPiecesOfHand * kEighths + kPieces[static_cast<size_t>(i % kPiecesOfHand)]) / (kEighths * hands);
    };
    for (int64_t i = 0; i < all; ++i) crew->taken_[static_cast<size_t>(i)].store(false, std::memory_order_relaxed);
    crew->run([&](int hand) {
      std::optional<decltype(prepare())> part;
      const auto take = [&](int64_t i) {
        if (crew->taken_[static_cast<size_t>(i)].exchange(true, std::memory_order_relaxed)) return;
        if (!part) part.emplace(prepare());
        (*part)(Range{begin_of(i) * step, std::min(count, begin_of(i + 1) * step)});
      };
      const int64_t begin = all * hand / hands, end = all * (hand + 1) / hands;
      for (int64_t i = begin; i < end; ++i) take(i);
      // From behind, where their owners come last.
      for (int64_t i = begin; i-- > 0;) take(i);
      for (int64_t i = all; i-- > end;) take(i);
    });
  }

 private:
  static constexpr int64_t kPiecesOfHand = 5, kMostPieces = 64, kEighths = 8;
  static constexpr std::array<int64_t, kPiecesOfHand> kPieces = {0, 2, 4, 6, 7};  // where they begin, in eighths

  struct Job {
    const void* part;
    void (*call)(const void* part, int i);
  };
  void run_all(const Job& job);
  void call(int i);
  void help(int i);
  void wait_until_not(const std::atomic<uint32_t>& word, uint32_t old) const;

  const int spins_;

  // Each on a line of its own: one is written by the caller, the other by those who help.
  alignas(64) std::atomic<uint32_t> begun_{0};  // jobs
  alignas(64) std::atomic<uint32_t> done_{0};   // parts, of all jobs
  alignas(64) Job job_{};
  std::array<std::atomic<bool>, kMostPieces> taken_{};  // pieces, of the job
  std::atomic<bool> failed_{false};
  std::exception_ptr thrown_;   // written by who set failed_
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace dtrain::engine
