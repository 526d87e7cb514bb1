// A Mover is the thread that carries a process's gradients to and from other hosts, bucket by
// bucket, while backward still computes the next ones. It does no sums: participants sum what goes
// out, and say so (Team::summed). Owner: Exchange. Thread: the process's first participant asks;
// the Wire is the mover's from the first bucket of a step to finish(), and that participant's at
// any other time. Promises: a bucket that is not there by the deadline, which begins anew whenever
// data moves, and whoever is lost meanwhile, ends the whole team with an error that names who is
// missing.
#pragma once

#include <atomic>
#include <thread>
#include <vector>

#include "engine/comm/team.h"
#include "engine/comm/wire.h"

namespace dtrain::engine {

// What of a bucket goes between this process and those of other hosts.
struct BucketTransfers {
  std::vector<Transfer> out, in;
};

class Mover {
 public:
  // All outlive it. `deadline_seconds`: of a bucket.
  Mover(Team& team, Wire& wire, const std::vector<BucketTransfers>& buckets,
        double deadline_seconds);
  ~Mover();
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  // The step that the next buckets are of; before the first of them is summed.
  void begin(int64_t step) { step_.store(step, std::memory_order_relaxed); }
  // Returns once all buckets of the step are here and there.
  Status finish(const Moment& moment);

 private:
  void run();
  Status move(uint64_t moved);
  Status wait_for_sums(uint32_t summed);

  Team& team_;
  Wire& wire_;
  const std::vector<BucketTransfers>& buckets_;
  const double deadline_seconds_;
  std::atomic<int64_t> step_ = 0;
  std::atomic<bool> ends_ = false;
  Signal moved_ = {};   // buckets since the start, modulo 2^32
  uint64_t steps_ = 0;  // finished: the first participant's
  std::thread thread_;
};

}  // namespace dtrain::engine
