// An Outcome as the numbers that participants tell each other.
#pragma once

#include <array>
#include <cmath>
#include <span>

#include "engine/models/model.h"
#include "engine/strategies/not_finite.h"

namespace dtrain::engine {

inline constexpr size_t kNotes = 3;

inline std::array<double, kNotes> notes_of(const Outcome& outcome) {
  return {outcome.loss, static_cast<double>(outcome.rows), static_cast<double>(outcome.correct)};
}

// All of them together; InvalidArgument when a loss is no number.
inline Result<Outcome> total_of(std::span<const double> notes, int64_t step) {
  Outcome total;
  for (size_t i = 0; i + kNotes <= notes.size(); i += kNotes) {
    if (!std::isfinite(notes[i])) return wrong_loss(notes[i], step);
    total += {notes[i], static_cast<int64_t>(notes[i + 1]), static_cast<int64_t>(notes[i + 2])};
  }
  return total;
}

}  // namespace dtrain::engine
