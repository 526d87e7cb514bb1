// The part of a model that one participant computes: some of its layers in a row (pipeline), and of
// each layer a slice (tensor). Whatever the part, parameters lie where the layout of the whole model
// has them: a part reads and writes its own ranges of the arenas only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/layout.h"
#include "schema/result.h"

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

// What of an arena a part holds; ranges ascend.
struct Held {
  std::vector<Range> own;      // nobody else's
  std::vector<Range> same;     // every slice has it, with the same gradient
  std::vector<Range> partial;  // first and last stage have it, each with a part of the gradient

  static void add(std::vector<Range>& ranges, Range range) {
    if (range.size() == 0) return;
    if (!ranges.empty() && ranges.back().end == range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
};

// The columns of a parameter [rows][columns] (or of a vector), as ranges of the arena.
inline void add_columns(std::vector<Range>& to, const Parameter& parameter, Range columns) {
  const int64_t width = parameter.shape.back();
  for (int64_t at = parameter.offset; at < parameter.range().end; at += width) {
    Held::add(to, {at + columns.begin, at + columns.end});
  }
}
// Its rows.
inline void add_rows(std::vector<Range>& to, const Parameter& parameter, Range rows) {
  const int64_t width = parameter.size() / parameter.shape.front();
  Held::add(to, {parameter.offset + rows.begin * width, parameter.offset + rows.end * width});
}

}  // namespace dtrain::engine
