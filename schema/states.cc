#include "schema/states.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace dtrain {

namespace {

constexpr uint32_t bit(State state) {
  return 1u << static_cast<uint32_t>(state);
}

constexpr uint32_t kEnds =
    bit(State::Finished) | bit(State::Failed) | bit(State::Killed) | bit(State::Lost);

struct StateRow {
  State state;
  std::string_view word;
  uint32_t next;  // the states that may follow; a state may always stay what it is
};

// Whatever can be alive can also end, be lost, be suspended, or be stopped to be launched again. What was never
// launched ends at once: only a launched process needs Stopping. But a PENDING experiment, with replicas
// that are CREATED, may have a build that looks whether there is anything to do, and that can fail.
constexpr uint32_t kBreaks = bit(State::Restarting) | bit(State::Suspended) | kEnds;

constexpr std::array<StateRow, 12> kStates{{
    {State::Created, "CREATED", bit(State::Pending) | bit(State::Building) | bit(State::Starting) | kBreaks},
    {State::Pending, "PENDING", bit(State::Building) | bit(State::Starting) | bit(State::Stopping) | kBreaks},
    {State::Building, "BUILDING", bit(State::Starting) | bit(State::Stopping) | kBreaks},
    {State::Starting, "STARTING", bit(State::Running) | bit(State::Stopping) | kBreaks},
    {State::Running, "RUNNING", bit(State::Stopping) | kBreaks},
    {State::Stopping, "STOPPING", kBreaks},
    {State::Restarting, "RESTARTING",
     bit(State::Created) | bit(State::Pending) | bit(State::Building) | bit(State::Starting) |
         bit(State::Stopping) | kBreaks},
    // A set as a whole is again what its members are.
    {State::Suspended, "SUSPENDED",
     bit(State::Created) | bit(State::Pending) | bit(State::Building) | bit(State::Starting) |
         bit(State::Running) | bit(State::Stopping) | kBreaks},
    {State::Finished, "FINISHED", 0},
    {State::Failed, "FAILED", 0},
    {State::Killed, "KILLED", 0},
    {State::Lost, "LOST", 0},
}};

constexpr bool rows_are_in_order() {
  for (size_t i = 0; i < kStates.size(); ++i) {
    if (static_cast<size_t>(kStates[i].state) != i) return false;
  }
  return true;
}
static_assert(rows_are_in_order(), "kStates is indexed by State");

const StateRow& row(State state) {
  return kStates[static_cast<size_t>(state)];
}

}  // namespace

std::string_view to_string(State state) {
  return row(state).word;
}

std::optional<State> parse_state(std::string_view word) {
  for (const StateRow& candidate : kStates) {
    if (candidate.word == word) return candidate.state;
  }
  return std::nullopt;
}

bool is_over(std::string_view state) {
  const auto known = parse_state(state);
  return known && is_terminal(*known);
}

bool may_follow(State from, State to) {
  return from == to || (row(from).next & bit(to)) != 0;
}

}  // namespace dtrain
