// How the memory of a team is laid out. Part of team.cc.
#pragma once

#include <sched.h>

#include "engine/comm/team.h"
#include "engine/norm.h"

namespace dtrain::engine {

// The first error of the team. state: 0 none, 1 being written, 2 there.
struct Failure {
  Word state;
  Word code;
  char text[1016];
};

struct Team::Control {
  Failure failure;
  Barrier opening;   // of processes
  Barrier everyone;  // of participants
};

// What a participant alone writes: how far it is, so that who is missing can be named.
struct alignas(64) Team::Seat {
  Word epochs[1 + kGroupSlots];
  Word at;         // the barrier that it came to last: 0 everyone's, else 1 + that of a group
  Word moves;      // what goes to and comes from other hosts
  Word opened;     // its process has mapped the memory
  cpu_set_t cpus;  // of that
  alignas(64) Word written;  // buckets, while backward goes on
  Signal summed;
};

// Offsets in bytes. All but the arenas is small, or touched only if used.
struct Team::Areas {
  static constexpr size_t kPage = 4096, kHugePage = size_t{2} << 20;

  size_t control, seats, groups, notes, blocks, stages, rings, arenas;
  size_t arena_bytes;  // from one to the next
  size_t end;

  Areas(const TeamPlan& plan, size_t members, size_t world) {
    const auto elements = static_cast<size_t>(plan.elements);
    const auto block_count = static_cast<size_t>(blocks_of(plan.elements));
    end = 0;
    control = take(sizeof(Control));
    seats = take(members * sizeof(Seat));
    groups = take(members * kGroupSlots * sizeof(Barrier));
    notes = take(2 * world * kMostNotes * sizeof(double));
    blocks = take(block_count * sizeof(double));
    stages = take(2 * kGroupSlots * members * kStageElements * sizeof(float));
    rings = take(members * members * sizeof(Ring));
    const size_t bytes = std::max<size_t>(elements, 1) * sizeof(float);
    arena_bytes = round_up(bytes, bytes < kHugePage ? kPage : kHugePage);
    end = round_up(end, kHugePage);
    const size_t count =
        1 + static_cast<size_t>(plan.states) + members * static_cast<size_t>(plan.arenas);
    arenas = take(count * arena_bytes);
  }

 private:
  static size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }
  size_t take(size_t bytes) {
    const size_t offset = end;
    end = round_up(end + bytes, kPage);
    return offset;
  }
};

}  // namespace dtrain::engine
