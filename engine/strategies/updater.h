// An Updater turns the gradients of a step into the next parameters: it is the one thing in which the
// ways of spreading a batch differ. It sees ranges of arenas, and knows no model.
// Owner: the training. Thread: each call is made by the participant `me`, and by every participant of
// this process, in the same order.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/leaves.h"
#include "engine/models/model.h"
#include "engine/strategies/seat.h"

namespace dtrain::engine {

struct Update {
  int64_t step = 0;  // from 0
  double learning_rate = 0;
};

// Elements that a process has, on its devices if it has any.
struct ArenaSizes {
  int64_t parameters = 0, gradients = 0, state = 0;
};

class Updater {
 public:
  virtual ~Updater() = default;

  // The participants of this process are [first(), first() + threads).
  virtual int first() const = 0;
  // The leaves of each batch, and what of them is `me`'s: one gradient arena for each node.
  virtual int64_t leaves() const = 0;
  virtual std::vector<Node> nodes(int me) const = 0;
  virtual ArenaSizes sizes() const = 0;
  // What part of the model `me` computes, and with whom.
  virtual Seat seat(int) { return {}; }
  virtual const float* parameters(int me) const = 0;
  virtual float* gradients(int me, size_t node) = 0;

  // What of the next step's batch is shared by leaves(): all of it, unless servers deal out parts, which are one
  // process's each. Asked before the step.
  virtual Range dealt(int me, int64_t batch) const {
    (void)me;
    return {0, batch};
  }
  // Before the gradients of a step are computed, of so many samples of all participants.
  virtual void begin_step(int me, const Update& update, int64_t samples) {
    (void)me;
    (void)update;
    (void)samples;
  }
  // While the last of a step's gradients are computed: of all of `me`'s arenas what lies from `offset` on is written.
  // Any number of times, or never.
  virtual void gradients_ready(int me, int64_t step, int64_t offset) {
    (void)me;
    (void)step;
    (void)offset;
  }
  // Gradients are written; afterwards parameters are new, and gradients may be written again. `own` is
  // what `me` computed; returns what is known of the whole batch; with servers, at the master, what the whole gang
  // computed since the call before. An error if it went wrong anywhere. Of devices, which may still be computing it,
  // that is of the step steps_behind() before: nothing if that was told already.
  virtual Result<Outcome> finish_step(int me, const Update& update, const Outcome& own) = 0;
  virtual int64_t steps_behind() const { return 0; }
  // Whether what finish_step() returns is of all participants, the same to each of them: then all can end after the
  // same step when one is asked to.
  virtual bool tells_all() const { return false; }
  // After finish_step(), before anything else but the next step: the rest of what is known of `step` and those before
  // it. Nothing is on its way afterwards.
  virtual Result<Outcome> settle(int me, int64_t step) {
    (void)me;
    (void)step;
    return Outcome{};
  }
  // After finish_step(): the steps that this process need not make any more, of which `steps` came one by one. More
  // where the others went on without it; not one more where it is to compute another part of the same batch.
  virtual int64_t steps_seen(int me, int64_t steps) const {
    (void)me;
    return steps;
  }
  // Updates that the parameters have seen after `steps` steps, which is what the optimiser's state counts.
  virtual int64_t updates(int64_t steps) const { return steps; }
  // An evaluation: which of the test samples `me` computes, and what came of all.
  virtual Range evaluated(int me, int64_t samples) const = 0;
  virtual Result<Outcome> add_up(int me, int64_t step, const Outcome& own) = 0;

  // What a checkpoint holds: whole at the master after collect(), and taken from there for everyone by
  // distribute(). The master alone looks.
  virtual std::span<float> params() = 0;
  virtual std::span<float> state(int index) = 0;
  virtual Status collect(int me, int64_t step) = 0;
  // It stays there until the next collect() or distribute(): what is trained on lies elsewhere.
  virtual bool keeps_collected() const { return false; }
  // `updates`: what updates() said then.
  virtual Status distribute(int me, int64_t step, int64_t updates) = 0;
  // The step that `me` goes on at, the master being at `step`.
  virtual Result<int64_t> agree(int me, int64_t step) = 0;
  // For as long as reading or writing a checkpoint may take.
  virtual Status wait_for_master(int me, int64_t step) = 0;

  // Training is done, and `me` asks nothing more.
  virtual Status finish(int me) = 0;
  // Ends all participants with this error, or with an earlier one, which it returns.
  virtual Error fail(Error error) = 0;
};

}  // namespace dtrain::engine
