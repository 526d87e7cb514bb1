// Starting a process exactly as asked: nothing of ours is inherited but what the request names.
//
// Thread: any, but the caller's: spawn() blocks until the new program runs or could not be run
// (about half a millisecond). Whoever spawns also reaps.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/data_mount.h"
#include "runner/image_root.h"
#include "runner/process_place.h"
#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::runner {

struct SpawnRequest {
  std::vector<std::string> argv = {};  // argv[0] without a slash is looked up in env's PATH
  std::string cwd = {};                // empty: the caller's
  std::map<std::string, std::string> env = {};  // complete
  std::vector<std::string> cgroups = {};        // directories to join before the program runs
  DataMount data = {};                          // entered before `cwd` is
  ImageRoot image = {};                         // so is this, and argv[0] is then looked for in there
  std::filesystem::path image_layer = {};       // what is written in there; empty: goes into the image
  // Entered instead of all these; argv[0] is then looked up in there.
  const ProcessPlace* beside = nullptr;
  // On which it runs, as far as the kernel lets it; it may widen that itself. Empty: as the caller.
  std::vector<int> processors = {};
  int input_fd = -1;                            // becomes 0; -1: /dev/null
  bool on_terminal = false;                     // input_fd is a terminal, which becomes the session's
  int output_fd = -1;                           // becomes 1 and 2; -1: /dev/null
  int error_fd = -1;                            // becomes 2 when set
  // Raised so that the kernel, short of memory, ends replicas before the keeper and the runner.
  int oom_score_adj = 0;
  // The kernel kills it when its parent dies. A second line of defence only: it does not reach
  // grandchildren, and a set-user-id program clears it.
  bool die_with_parent = false;
};

// A process of ours that was not reaped yet. pidfd turns readable when it ends.
struct Child {
  pid_t pid = -1;
  Fd pidfd;
};

// Starts it in a session of its own, all signals at their defaults, every
// other descriptor closed. Errors, worded for the person who wrote the command:
//   NotFound            no such program (what a shell calls 127)
//   PermissionDenied    there, but it can't be run (126)
//   FailedPrecondition  where it is to run can't be entered: directory, image, data sets (126)
//   ResourceExhausted   no process or memory left (126)
Result<Child> spawn(const SpawnRequest& request);

// A process that is forked and becomes a program by itself, however long that takes: nobody waits for it, as spawn()
// does. Whoever begins it reaps it.
class Spawning {
 public:
  // Nothing of the request's descriptors is needed once this returns. Errors: of spawn(), for what is known at once.
  static Result<std::unique_ptr<Spawning>> begin(SpawnRequest request);
  ~Spawning();
  Spawning(const Spawning&) = delete;
  Spawning& operator=(const Spawning&) = delete;

  pid_t pid() const { return pid_; }
  // Readable once outcome() has one. Non-blocking.
  int fd() const { return failures_.get(); }
  // nullopt: it is on its way. Ok: the program runs, or has. Else an error of spawn(): it is ending.
  std::optional<Status> outcome() const;

 private:
  Spawning();
  struct Parts;
  const std::unique_ptr<Parts> parts_;
  pid_t pid_ = -1;
  Fd failures_;
};

// 127 or 126 for an error of spawn().
int exec_failure_code(const Error& error);

// Reaps the child if it has ended: its wait status. pid becomes -1, so that it is never signalled
// again. nullopt: it still runs.
std::optional<int> try_reap(Child& child);

// "exit code 3", "killed by SIGSEGV (11)".
std::string describe_wait_status(int status);
// "SIGTERM", "signal 42".
std::string signal_name(int signal);

}  // namespace dtrain::runner
