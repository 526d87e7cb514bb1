// The part of a model that one participant computes: some of its layers in a row (pipeline), and of
// each layer a slice (tensor).
#pragma once

#include <cstdint>

#include "engine/layout.h"

namespace dtrain::engine {

struct ModelPart {
  int stage = 0, stages = 1;
  int slice = 0, slices = 1;

  bool is_first() const { return stage == 0; }
  bool is_last() const { return stage + 1 == stages; }
  bool is_whole() const { return stages == 1 && slices == 1; }
  // Which of `count` layers.
  Range layers(int64_t count) const { return {count * stage / stages, count * (stage + 1) / stages}; }
  // Which of `count` columns, rows or heads.
  Range sliced(int64_t count) const { return {count * slice / slices, count * (slice + 1) / slices}; }
};

// Those that have the other slices of the same layers. A call that fails leaves numbers without a
// meaning, and so do all after it: who trains asks afterwards.
template <class T, class Sum = T>
class Partners {
 public:
  virtual ~Partners() = default;
  // Replaces values by their sum over all slices, the same bits for everyone.
  virtual void add_up(T* values, int64_t count) = 0;
  // all[slice][count] from everyone's mine[count].
  virtual void gather(const Sum* mine, Sum* all, int64_t count) = 0;
};

}  // namespace dtrain::engine
