// How an experiment ended, told to a person: the failure that ended it with its last lines, the number of
// replicas that ended because of it, where things lie and what to type next.
//
// Pure: it is fed every item of the Watch and keeps a few kilobytes a replica.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/terminal.h"
#include "schema/dtrain.pb.h"
#include "schema/ids.h"

namespace dtrain::cli {

// So many lines of a replica's output are shown below its failure.
inline constexpr size_t kLastLines = 10;

// The engine's own way to fail that another start doesn't change: it has said what it can't take.
bool engine_refused(const pb::ExperimentInfo& info);

// It had no place, for its image takes podman or docker and no host has either.
bool lacks_container_program(const pb::ExperimentInfo& info);

// What starts it again: "dtrain rerun 4"; for the engine with how it goes on instead,
// where it may have got as far as a checkpoint, or with what has to change.
std::string rerun_text(const pb::ExperimentInfo& info);
// How the reason begins of what failed with another one, which it names next.
inline constexpr std::string_view kCameAfter = "was to come after ";

// Of a set's members: ", 5 failed, 1 killed", or nothing.
std::string bad_ends(const pb::ExperimentInfo& set);

// "Last lines of 4.train:" and the lines.
std::string last_lines_text(const std::string& replica, const std::vector<std::string>& lines, bool colours);

// The replica that was the cause of an end, and what it did.
struct Cause {
  std::string replica;
  std::string what;
};
// From "4.worker.1: exit code 3"; nothing where no replica was the cause. Others may have failed before,
// and were ignored.
std::optional<Cause> cause_in(const std::string& reason);

class Ending {
 public:
  void add(const pb::LogChunk& chunk);
  // True when the replica ended only because another one failed before it.
  bool add(const pb::StateEvent& event);

  // Of a replica's output in its newest attempt, ready for a screen.
  std::vector<std::string> last_lines(const std::string& replica) const;

  // Not all of the output comes here: that a replica printed nothing can't be told.
  void expect_a_part() { whole_ = false; }

  // For stderr; several lines. `output` is where the results lie, as a person would type it; `best` the best member, where
  // that is known.
  std::string text(const pb::ExperimentInfo& outcome, const std::string& output, const Screen& screen,
                   const std::string& best = "") const;

 private:
  struct Failure {
    Cause cause;
    std::string printer;   // whose words decided, where that is another one
    std::set<std::string> followers;
  };

  struct Tail {
    uint32_t attempt = 0;
    std::string text;
  };

  Tail& tail_of(const std::string& replica, uint32_t attempt);
  void add_experiment(const pb::StateEvent& event);
  std::optional<Failure> failure_of(const pb::ExperimentInfo& outcome) const;
  std::string failure_text(const Failure& failure, const Screen& screen) const;

  bool whole_ = true;
  std::map<ExperimentId, Failure> failures_;  // by experiment or member
  std::map<std::string, Tail> tails_;         // by replica: the end of its output
};

}  // namespace dtrain::cli
