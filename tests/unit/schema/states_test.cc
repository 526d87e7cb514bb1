#include "schema/states.h"

#include <doctest/doctest.h>

#include <vector>

using namespace dtrain;

namespace {

const std::vector<State> kAll{State::Created, State::Pending,  State::Building,   State::Starting,
                              State::Running, State::Stopping, State::Restarting, State::Suspended, State::Finished,
                              State::Failed,  State::Killed,   State::Lost};

}  // namespace

TEST_CASE("every state has a word that reads back") {
  for (const State state : kAll) CHECK(parse_state(to_string(state)) == state);
  CHECK_FALSE(parse_state("running"));
  CHECK_FALSE(parse_state(""));
}

TEST_CASE("a terminal state is never left, any other can end") {
  for (const State from : kAll) {
    CHECK(may_follow(from, from));
    for (const State to : kAll) {
      if (is_terminal(from) && from != to) CHECK_FALSE(may_follow(from, to));
    }
    if (!is_terminal(from)) {
      CHECK(may_follow(from, State::Failed));
      CHECK(may_follow(from, State::Killed));
    }
  }
}

TEST_CASE("the way of an experiment is legal, steps back are not") {
  const State way[] = {State::Created, State::Pending,  State::Building, State::Starting,
                       State::Running, State::Stopping, State::Finished};
  for (size_t i = 0; i + 1 < std::size(way); ++i) {
    CHECK(may_follow(way[i], way[i + 1]));
    CHECK_FALSE(may_follow(way[i + 1], way[i]));
  }
  CHECK(may_follow(State::Running, State::Restarting));
  CHECK(may_follow(State::Restarting, State::Pending));
  // What is being suspended may be let go on before it is all ended.
  CHECK(may_follow(State::Stopping, State::Suspended));
  CHECK(may_follow(State::Stopping, State::Restarting));
  CHECK(may_follow(State::Suspended, State::Restarting));
  CHECK_FALSE(may_follow(State::Stopping, State::Running));
  CHECK_FALSE(may_follow(State::Created, State::Running));
}
