// A Team is the participants of one host and the memory they share: one copy of the parameters and
// of the optimiser's state, a few gradient arenas for each, and what they meet and fail by. Threads
// of one process and processes of one host are the same to it. Owner: the engine's main, one a
// process. Thread: each call is made by the participant it names. Promises: a wait ends by its
// deadline; then, or when someone is lost or fails, everyone's next wait ends with the same error,
// which names who was missing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/comm/barrier.h"
#include "engine/comm/gang.h"
#include "engine/comm/shared_memory.h"

namespace dtrain::engine {

struct TeamPlan {
  int64_t elements = 0;  // of an arena
  int states = 0;        // arenas of optimiser state
  int arenas = 1;        // gradient arenas a participant
};

inline constexpr int kMostNotes = 32;  // doubles a participant tells all others at once
inline constexpr int kGroupSlots = 4;  // subgroups that a participant can be in
inline constexpr int64_t kRingElements = 256 * 1024;
inline constexpr int64_t kStageElements = 256 * 1024;

// A stream of floats from one participant of the host to another: elements sent and received so
// far, modulo 2^32 (a ring is far smaller).
struct Ring {
  alignas(64) Signal sent;
  alignas(64) Signal received;
  alignas(64) float data[kRingElements];
};

// A wait for others, and until when to call Team::overdue().
struct Wait {
  explicit Wait(Deadline until_then)
      : deadline(until_then), until(until_then.first_question()) {}
  Deadline deadline, until;
  std::optional<Deadline::Clock::time_point> asks_since = {};
};

class Team {
 public:
  // Every process of the gang calls it.
  static Result<std::unique_ptr<Team>> open(Gang& gang, const TeamPlan& plan, Deadline deadline);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int first() const { return first_; }  // participant of this host
  int size() const { return size_; }    // participants of this host
  const TeamPlan& plan() const { return plan_; }
  Gang& gang() const { return gang_; }

  std::span<float> params() const;
  std::span<float> state(int index) const;
  std::span<float> gradients(int participant, int arena = 0) const;
  // A double for each block of an arena.
  std::span<double> blocks() const;
  // Of any participant of the world; there are two sets.
  std::span<double> notes(int set, int participant) const;
  // For exchanges within the subgroup of a slot; there are two sets.
  std::span<float> stage(int slot, int set, int participant) const;
  Ring& ring(int from, int to) const;
  // Buckets of gradients since the start (slices.h) that a participant has written, and of which it has summed its
  // share of what goes to other hosts. It alone changes them.
  Word& written(int participant) const;
  Signal& summed(int participant) const;

  // All participants of the host.
  Status barrier(int me, Deadline deadline, const Moment& moment);
  // Those of a subgroup on this host: in each slot, every participant is in one at most.
  Status barrier(int me, std::span<const int> group, int slot, Deadline deadline,
                 const Moment& moment);

  // While it moves what goes between hosts, by itself or by its Mover.
  void set_moving(int participant, bool moves);

  // How to wait for something that another participant will do.
  Patience patience(Deadline deadline, const std::function<Status()>& look) const {
    return {deadline, spins_, &look};
  }
  // The error that ended a participant of the host, or one of another host. `waited_for`: the process that is waited
  // for meanwhile, told to those who ask, unless it is this one.
  Status look(const Moment& moment, const std::function<int()>& waited_for = {});
  // A wait is long, for these processes, as they are to be called, or for any: it asks them, and
  // moves wait.until to when to call it again. A deadline after the wait began, and after data
  // moved last at one of them or at whom they wait for, and once they had time to answer, that is
  // an error that ends everyone: who waits itself is not named, but whom it waits for. `they_wait`:
  // they are seen to, so they come to their deadline themselves, and know more.
  Status overdue(Wait& wait, const std::map<int, std::string>& processes, const Moment& moment,
                 bool they_wait = false);
  // Ends everyone with this error, or with an earlier one: that is what it returns.
  Error fail(Error error);

 private:
  struct Control;
  struct Seat;
  struct Areas;

  Team(Gang& gang, const TeamPlan& plan);
  Status map(Deadline deadline);
  Status meet(Deadline deadline);
  void decide_spinning();
  std::optional<Error> failed() const;
  Status pass(Barrier& barrier, std::span<const int> group, size_t slot, int me, Deadline deadline,
              const Moment& moment);
  bool waits(int participant) const;
  // Who has not come, by process: those who wait for others themselves, and the rest.
  struct Missing {
    std::map<int, std::string> idle, waiting;
    const std::map<int, std::string>& first() const { return idle.empty() ? waiting : idle; }
  };
  Missing missing(std::span<const int> group, size_t slot, uint32_t epoch) const;

  template <class T>
  T* at(size_t offset) const;
  Seat& seat(int participant) const;
  size_t local(int participant) const { return static_cast<size_t>(participant - first_); }

  Gang& gang_;
  const TeamPlan plan_;
  int first_ = 0, size_ = 0;
  int spins_ = 0;
  std::vector<int> everyone_;  // 0..: the participants of the host
  std::unique_ptr<Areas> areas_;
  SharedMemory memory_;
};

}  // namespace dtrain::engine
