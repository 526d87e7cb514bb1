// The keeper of a launch as a process: whether it lives, whether it runs, and the end of what it
// leaves.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "runner/file_worker.h"
#include "runner/launch_dir.h"
#include "runner/launch_facts.h"
#include "runner/process.h"
#include "runner/process_identity.h"
#include "runner/process_watch.h"
#include "schema/result.h"

namespace dtrain::runner {

// A KeeperGuard sees that the replicas of a launch end, whatever becomes of their keeper.
// Owner: HeldLaunch. Thread: loop. After destruction no callback is made.
// Promises: a keeper that runs is left alone, however long it takes: it ends its replicas better
// than anybody else. One that is in the kernel at each of many looks hangs, and does not run. Nothing is said to have ended before it was looked for.
// Never: talks to the keeper.
class KeeperGuard {
 public:
  struct Callbacks {
    std::function<void()> gone;         // the keeper has ended
    std::function<bool()> awaits_ends;  // replicas that should have ended have not: look now
    std::function<void(const std::map<ReplicaId, ReplicaExit>&)> strays_gone;
  };
  // `answers`: what a keeper has for an end beyond the grace, before somebody looks whether it runs at all, and between looks.
  KeeperGuard(boost::asio::io_context& loop, FileWorker& files, LaunchDir directory,
              Callbacks callbacks, std::chrono::milliseconds answers = std::chrono::seconds(1));
  KeeperGuard(const KeeperGuard&) = delete;
  KeeperGuard& operator=(const KeeperGuard&) = delete;

  // One of them, once. NotFound when it is gone already; ResourceExhausted: that can't be told now.
  void watch(Child keeper);
  Status watch(const ProcessIdentity& keeper);
  // What the facts say.
  void identify(const ProcessIdentity& keeper) { keeper_ = keeper; }
  pid_t pid() const { return keeper_.pid; }  // 0: not identified yet
  // While it is watched.
  void signal(int number) const { watch_->signal(number); }

  // Ends are due after the grace. From then on, as long as they are awaited, a keeper that somebody
  // stopped is continued, and killed when that doesn't help; one that hangs is killed.
  void await_ends(int64_t grace_ms);

  // Of a dead keeper. What can't be killed yet is tried until it can.
  void end_strays();
  // The same, at once if it can be: strays_gone is called in here. An error: they can't be looked
  // for now, and nothing goes on.
  Status end_strays_now();

 private:
  void look();

  boost::asio::io_context& loop_;
  FileWorker& files_;
  const LaunchDir directory_;
  const std::string name_;  // of the launch
  const Callbacks callbacks_;
  const std::chrono::milliseconds answers_;
  ProcessIdentity keeper_;
  std::unique_ptr<ProcessWatch> watch_;
  boost::asio::steady_timer ends_due_;
  bool awaiting_ends_ = false;  // ends_due_ runs
  bool continued_ = false;
  int hung_looks_ = 0;   // in a row
  boost::asio::steady_timer kill_again_;
  std::string strays_alive_;  // why their end is not said yet

  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // what was put off may come after it
};

}  // namespace dtrain::runner
