// An Outcome as the numbers that participants tell each other.
#pragma once

#include <array>
#include <span>

#include "engine/models/model.h"

namespace dtrain::engine {

inline constexpr size_t kNotes = 4;

inline std::array<double, kNotes> notes_of(const Outcome& outcome) {
  return {outcome.loss, static_cast<double>(outcome.rows), static_cast<double>(outcome.correct),
          static_cast<double>(outcome.asked_to_end)};
}

// Of a start, at which the parameters have seen so many updates more than steps. As numbers that are added up.
inline Outcome counts(int64_t step, int64_t ahead) { return {.loss = 0, .rows = step, .correct = ahead}; }

// All of them together; where one's loss is no number that of all is none.
inline Outcome total_of(std::span<const double> notes) {
  Outcome total;
  for (size_t i = 0; i + kNotes <= notes.size(); i += kNotes) {
    total += {notes[i], static_cast<int64_t>(notes[i + 1]), static_cast<int64_t>(notes[i + 2]), static_cast<int64_t>(notes[i + 3])};
  }
  return total;
}

}  // namespace dtrain::engine
