// One replica in its keeper's hands, from waiting to its end.
#pragma once

#include <sys/resource.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/launch_dir.h"
#include "runner/launch_facts.h"
#include "runner/line_watch.h"
#include "runner/process.h"
#include "runner/process_tree.h"
#include "runner/spool.h"
#include "schema/result.h"

namespace dtrain::runner {

// What a kept replica asks of its keeper.
struct KeeperCalls {
  std::function<void()> output;                    // there is more in a spool
  std::function<void()> fact;                      // there is more in the facts
  std::function<void(int64_t delay_ms)> sweep_in;  // look at the processes then, at the latest
};

// A command to run beside a replica's main process.
struct BesideCommand {
  std::vector<std::string> argv;
  std::map<std::string, std::string> variables;  // besides the replica's own
  bool on_terminal = false;                      // the descriptors are one terminal
  int input_fd = -1, output_fd = -1, error_fd = -1;
};

// Owner: Keeper. Thread: its loop.
// Promises: one exit in the facts, written after nothing of the tree is alive and all output is in the
// spool, whatever is asked and when. It never waits for a process itself: the keeper reaps and
// tells.
class KeptReplica {
 public:
  KeptReplica(boost::asio::io_context& loop, const LaunchDir& directory, FactsWriter& facts,
              const LaunchRecord& launch, const ReplicaLaunch& replica, KeeperCalls calls);
  KeptReplica(const KeptReplica&) = delete;
  KeptReplica& operator=(const KeptReplica&) = delete;

  void start();
  // TERM to the whole tree, KILL after the grace. A second call can only shorten the grace. `why`
  // goes in front of the cause; empty: nothing to add.
  void stop(int64_t grace_ms, const std::string& why);
  // In its environment, its groups and where its main process is: the new process, whose group has its number. Nothing of
  // it is waited for, but it is of this tree and ends with it. Errors: those of spawn().
  Result<std::unique_ptr<Spawning>> run_beside(const BesideCommand& command);
  void on_beside_exit(int wait_status);
  // Its main process was reaped.
  void on_exit(int wait_status, const rusage& usage);
  // The live processes of its tree, after a look at them. Only of interest once it is ending.
  void on_sweep(const std::vector<ProcessRow>& alive);
  void acknowledge(uint64_t offset) { spool_.acknowledge(offset); }

  const ReplicaId& id() const { return replica_.id; }
  pid_t main_pid() const { return main_alive_ ? process_.pid : -1; }
  TreeMarks marks() const;
  bool is_running() const { return phase_ == Phase::Running; }
  bool is_ending() const { return phase_ == Phase::Ending; }
  bool has_ended() const { return phase_ == Phase::Ended; }

 private:
  enum class Phase { Waiting, Running, Ending, Ended };

  SpawnRequest spawn_request() const;
  bool start_later();
  void record_start();
  void read_output();
  bool read_once();
  void look_at(std::string_view output);
  void end_output();
  void end(int64_t grace_ms, const std::string& why);
  void record_lines();
  void end_for_line();
  void finish_if_gone();
  void write_exit();
  ReplicaExit make_exit() const;
  std::string signal_cause(int signal, bool memory_kill, const struct CgroupUsage& group) const;

  const LaunchDir& directory_;
  FactsWriter& facts_;
  const LaunchRecord& launch_;
  const ReplicaLaunch& replica_;
  KeeperCalls calls_;
  SpoolWriter spool_;
  LineWatch watch_;
  size_t lines_recorded_ = 0;
  size_t read_most_ = 64 << 10;   // bytes at once
  boost::asio::posix::stream_descriptor output_;  // read end of its stdout and stderr
  boost::asio::steady_timer read_timer_;
  boost::asio::steady_timer record_timer_;
  boost::asio::steady_timer finish_timer_;

  Phase phase_ = Phase::Waiting;
  ProcessIdentity process_;
  std::vector<ProcessIdentity> beside_;  // where no group tells who is of this tree: each command that ever was
  uint64_t beside_kills_ = 0;            // of commands, by the kernel or a stranger
  uint64_t memory_kills_before_ = 0;  // of the kernel, when it was started
  uint64_t pipe_inode_ = 0;
  bool main_alive_ = false;
  bool tree_gone_ = false;
  bool output_ended_ = false;
  bool waits_for_output_ = false;
  bool term_due_ = false;   // the next sweep sends TERM
  bool killed_ = false;     // we sent KILL
  bool stop_asked_ = false;       // by whoever may, and not for a line
  bool ended_for_line_ = false;
  int64_t kill_at_ms_ = 0;  // of boottime_ms(), while ending
  int64_t gone_at_ms_ = 0;
  int64_t retry_ms_ = 0;
  int64_t started_unix_ms_ = 0;  // 0: it never was
  bool start_recorded_ = false;
  std::string why_;
  int starts_tried_ = 0;
  std::optional<Error> exec_error_;
  int wait_status_ = 0;
  rusage usage_{};
};

}  // namespace dtrain::runner
