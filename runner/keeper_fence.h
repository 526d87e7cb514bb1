// Ends what a keeper has when its lease is long over and its loop does not get to it: it hangs in a file system that is away,
// say, while the daemon takes all of it for gone and may have started another.
//
// Owner: the keeper. Thread: one of its own, beside the loop. Never: touches a file, a lock or anything of the loop's; reads but
// /proc.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>

#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::runner {

class KeeperFence {
 public:
  KeeperFence() = default;
  KeeperFence(const KeeperFence&) = delete;
  KeeperFence& operator=(const KeeperFence&) = delete;
  ~KeeperFence();

  Status begin();
  // Whatever lives below this process then, of boottime_ms(), is killed, until nothing does. Instead of what was said before.
  void kill_at(int64_t at_ms);
  // Whether it has killed anything.
  bool has_killed() const { return has_killed_; }

 private:
  void run();

  Fd timer_;
  std::atomic<bool> ends_ = false;
  std::atomic<bool> has_killed_ = false;
  std::thread thread_;
};

}  // namespace dtrain::runner
