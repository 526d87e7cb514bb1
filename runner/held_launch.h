// One launch on this host: its directory, its keeper, its replicas.
//
//   prepare -> preparing -> keeper coming up -> prepared -> started -> ... -> all released ->
//   forgotten
//                       \-> failed                        \-> keeper lost: killed, written down
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runner/keeper_client.h"
#include "runner/keeper_guard.h"
#include "runner/keeper_nursery.h"
#include "runner/launch_dir.h"
#include "runner/launch_files.h"
#include "runner/outbox.h"
#include "runner/output_carrier.h"
#include "runner/ports.h"
#include "runner/replica.h"

namespace dtrain::runner {

// What the launches of one agent share.
struct LaunchContext {
  boost::asio::io_context& loop;
  FileWorker& files;  // preparing and deleting
  FileWorker& ends;   // what ended is not to wait for that
  const LaunchSite& site;
  Outbox& outbox;
  KeeperNursery& keepers;
  LogWindow window;
  std::function<void()> output_ready;          // a pump() may send something
  std::function<void()> host_changed;          // the inventory may be another
  std::function<void(LaunchId)> over;  // nothing of it is left: erase it
};

// A HeldLaunch is one launch from its Launch message, or from its adoption, to its removal.
// Owner: Agent, by what it is. Thread: loop. Outlives its keeper.
// Promises: whatever is asked of it, how often and in which order, each replica is launched at most
// once, exits once and is released once.
// Never: talks to the network, or knows what an exit means for the experiment.
class HeldLaunch {
 public:
  HeldLaunch(LaunchContext& context, const LaunchId& id);
  ~HeldLaunch();
  HeldLaunch(const HeldLaunch&) = delete;
  HeldLaunch& operator=(const HeldLaunch&) = delete;

  // Once, first: a new launch, or one that an earlier runner left. adopt(): NotFound when there is
  // nothing to adopt, and what there was is removed; any other error: it may be running, and can't be
  // looked at now.
  void prepare(const pb::Launch& message, const std::vector<ReplicaId>& replicas);
  Status adopt();

  // Repeats change nothing. The Launch itself came again: Prepared is said again, if it is.
  void repeat_prepared();
  // The lease counts from `contact_ms` (CLOCK_BOOTTIME): our last word that the daemon answered.
  void start(int64_t contact_ms);
  void stop(const ReplicaId& replica, int64_t grace_ms);
  void forget(const ReplicaId& replica);
  void acknowledge(const ReplicaId& replica, uint64_t offset);
  void renew(int64_t contact_ms);

  // A stream opened: report every fact, send output from what the daemon has of it. Closed: pause.
  void resume(const std::map<ReplicaId, uint64_t>& durable);
  void pause();
  // At most one message of output of each replica. True: there may be more. Costs nothing when nothing
  // happened since the last one: a host may hold hundreds of silent launches.
  bool pump();

  bool holds(const ReplicaId& replica) const;
  bool all_exited() const;  // while no replica is known, too
  const LaunchId& id() const { return id_; }
  const LaunchRecord& file() const { return file_; }
  pid_t keeper_pid() const { return keeper_.pid(); }  // 0: none was up yet
  const std::vector<std::unique_ptr<Replica>>& replicas() const { return replicas_; }

 private:
  // Failed: not prepared, or with nothing to prepare for, and not held any more. Removing: all released and forgotten.
  enum class Stage { Preparing, KeeperComing, Prepared, KeeperLost, Failed, Removing };

  Replica* find(const ReplicaId& id);
  void add_replicas(const std::vector<ReplicaId>& ids);
  bool is_of_another_home() const;
  void on_files_ready(LaunchFiles::Made made);
  Status bring_up_keeper();
  void on_keeper_word(std::string_view word);
  void fail(const Error& error, int port_taken, bool unfit = false);
  void keep_nothing();
  void clear_failed();
  void end_failed();   // once it was told of on the present stream
  void abandon();
  void on_keeper_unreachable();
  void on_keeper_gone();
  void on_strays_gone(const std::map<ReplicaId, ReplicaExit>& ends);
  void look();
  void look_later();
  bool all_asked_to_stop() const;  // of those that have not exited
  bool awaits_ends();
  void say_bye_if_over();
  void take_exits(const std::map<ReplicaId, ReplicaExit>& exits);
  bool may_be_outrun() const;
  void carry_outputs();
  void let_go_of_work(const Replica& replica);
  void settle(Replica& replica);
  void remove_if_forgotten();
  void report_prepared();

  LaunchContext& context_;
  LaunchId id_;
  LaunchDir directory_;
  SpoolListing spools_;
  LaunchRecord file_;
  FactsReader facts_;
  KeeperGuard keeper_;
  LaunchFiles making_;
  KeeperClient client_;
  Stage stage_ = Stage::Preparing;
  std::vector<std::unique_ptr<Replica>> replicas_;
  HeldPorts ports_;
  pb::FromRunner failure_;      // once Failed, why: said again until a stream carried it
  bool failure_told_ = false;
  bool failure_cleared_ = false;
  std::unique_ptr<OutputCarrier> carrier_;   // where the daemon's outputs are not here
  bool streaming_ = false;
  int64_t contact_ms_ = 0;      // with the daemon, as start() and renew() have it; 0: none of this runner's
  bool may_have_output_ = false;
  std::map<ReplicaId, std::string> work_released_;  // with what it left behind
  std::set<ReplicaId> work_releasing_;
  std::set<ReplicaId> forgotten_;

  boost::asio::posix::stream_descriptor ready_;  // the coming keeper's word
  std::array<char, 1024> word_{};
  boost::asio::steady_timer look_again_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // a timer's handler may come after the end
};

}  // namespace dtrain::runner
