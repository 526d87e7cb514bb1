// The states an experiment or replica can be in, in the words users see.
//
// A state is derived from facts (daemon/model.h) and never stored beside them.
#pragma once

#include <optional>
#include <string_view>

namespace dtrain {

enum class State {
  Created,     // held back by `concurrency`, or (a replica) not launched yet
  Pending,     // waits for resources, always with a reason
  Building,    // placed; a host builds the environment
  Starting,    // placed; not every process runs yet
  Running,     // every process was started
  Stopping,    // the outcome is fixed, or it is being suspended; something is still alive
  Restarting,  // between attempts
  Suspended,   // by a person: it is not placed until somebody says otherwise
  Finished,
  Failed,
  Killed,
  Lost,  // replicas only: the host is gone
};

std::string_view to_string(State state);  // "RUNNING"
// In place of a state: the store has it, and this daemon can't read it.
inline constexpr std::string_view kUnreadable = "UNREADABLE";
std::optional<State> parse_state(std::string_view word);

constexpr bool is_terminal(State state) {
  return state == State::Finished || state == State::Failed || state == State::Killed ||
         state == State::Lost;
}

// Of a state as messages write it; a word that is no state is not over.
bool is_over(std::string_view state);

// The one table of legal transitions, of an experiment over its life and of a replica within one
// attempt (a new attempt begins afresh); staying the same is legal. Used by tests and by the
// simulation after every step.
bool may_follow(State from, State to);

}  // namespace dtrain
