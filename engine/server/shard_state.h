// What a parameter server must not lose: parameters and optimiser state of its shard, and which pushes
// they have seen. It lies in a file that the process maps, so it outlives a process that is killed at
// any instruction (not the host: that is what checkpoints are for, and a file of before it was started is not taken).
//
// One block of elements is changed at a time, the old one copied aside before. Whoever opens the file
// next either finds the change whole or undoes it; a push stopped between two blocks goes on where it
// was when the worker sends it again.
#pragma once

#include <memory>
#include <string>

#include "engine/comm/deadline.h"
#include "engine/layout.h"
#include "engine/norm.h"
#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::engine {

// Owner: the server. Thread: one.
class ShardState {
 public:
  struct Shape {
    uint64_t job = 0;  // of the experiment and its configuration
    int64_t elements = 0;
    int states = 0;   // arenas of optimiser state
    int writers = 1;  // who push: workers, and one more for the sum of all
    uint64_t boot = 0;  // of the host
  };
  // How far a writer's pushes have come: all before `sequence`, and that one's first blocks.
  struct Progress {
    uint64_t sequence = 0;
    uint64_t next_block = 0;
  };
  // How a step's sum is applied.
  struct Applied {
    uint64_t step = 0;
    double gradient_scale = 0;  // 0: by the mean
    uint64_t samples = 0;
  };
  // What the updates since it was filled were computed from.
  struct Learned {
    double loss = 0;  // summed over rows
    uint64_t rows = 0;
  };

  // Takes the state that `path` holds if it has this shape, else an empty one. Waits until no other
  // process has it. An empty path: memory that goes with the process. Makes the path's folder.
  static Result<std::unique_ptr<ShardState>> open(const std::string& path, const Shape& shape,
                                                  Deadline deadline);
  ~ShardState();
  ShardState(const ShardState&) = delete;
  ShardState& operator=(const ShardState&) = delete;

  const Shape& shape() const { return shape_; }
  int64_t blocks() const { return blocks_of(shape_.elements); }
  Range block(int64_t index) const;
  float* arena(int which) const { return arenas_[which]; }  // 0: parameters

  // Filled by worker 0, once a generation: what was pushed before is of no account.
  bool filled() const;
  uint64_t generation() const;
  uint64_t attempt() const;
  void begin_filling(uint64_t generation, uint64_t attempt);
  // With what has seen so many updates, for steps from `begun_at` on.
  void set_filled(uint64_t updates, uint64_t begun_at);
  // The step that worker 0 began at: pushes are counted from there.
  uint64_t begun_at() const;

  // Updates that a block has seen.
  uint64_t updates(int64_t block) const { return updates_[block]; }
  Progress progress(int writer) const { return progress_[writer]; }
  // Before and after changing a block of the arenas in place, as a part of a writer's push.
  void begin_change(int64_t block);
  void commit_change(int writer, uint64_t sequence);
  // What writers have in their hands: of the numbers from 0 on each is dealt once, in order. A writer's is dealt when
  // it is asked for first, and the next one when it is done with that: false, and nothing happens, if it was before.
  uint64_t deal(int writer);
  bool deal_next(int writer, uint64_t done);
  // Of the last step of which anything was applied; set before that.
  const Applied& applied() const;
  void set_applied(const Applied& applied);
  // A figure to print: a kill while it is added to may cost it a step.
  const Learned& learned() const;
  void add_learned(const Learned& more);

  // No worker will come that does not use it now.
  bool finished() const;
  void set_finished();
  // The file goes, and its folder if that is empty; what is mapped stays.
  void remove();

 private:
  struct Header;
  ShardState() = default;
  bool is_sound() const;
  void recover();

  std::string path_;
  Shape shape_;
  Fd fd_;
  char* map_ = nullptr;
  size_t size_ = 0;
  Header* header_ = nullptr;
  Progress* progress_ = nullptr;
  uint64_t* deals_ = nullptr;  // of each writer, and 1; 0: none
  uint64_t* updates_ = nullptr;
  float* aside_ = nullptr;  // the old block of each arena
  float* arenas_[3] = {};
};

}  // namespace dtrain::engine
