// The agent: what this host holds, and the answers to what the daemon asks.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "runner/exec_session.h"
#include "runner/forward_session.h"
#include "runner/left_session.h"
#include "runner/held_launch.h"
#include "runner/outbox.h"
#include "runner/usage.h"
#include "schema/dtrain.pb.h"
#include "schema/result.h"
#include "schema/wall_pace.h"

namespace dtrain::runner {

struct AgentOptions {
  std::string host_id;
  int64_t lasts_ms = 0;   // how long this host is there from first to last; 0: it stays
  int64_t ends_ms = 0;    // CLOCK_BOOTTIME
  std::filesystem::path keeper_executable;
  uint64_t log_window_bytes = uint64_t{16} << 20;
  int64_t renew_every_ms = 10'000;  // until a daemon wishes otherwise
  std::chrono::milliseconds old_work_every = std::chrono::hours(1);  // is looked for
  DialExec dial_exec = {};   // to whoever wants a command run beside a replica, or a connection; empty: nobody can
  UsageOptions usage;
};

// Agent owns the launches of this host by name and turns messages into calls on them.
// Owner: main. Thread: loop. Outlives any number of streams.
// Promises: a message repeated, late, or of another attempt changes nothing.
// Never: blocks on the network; decides about experiments.
class Agent {
 public:
  // `inventory` is asked at each Hello, `outbox` must outlive the agent.
  Agent(boost::asio::io_context& loop, AgentOptions options, LaunchSite site, Outbox& outbox,
        std::function<pb::Inventory()> inventory);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  // Once, before the first stream: takes over what an earlier runner left, ends what lost its
  // keeper.
  Status adopt();

  // A stream opened: Hello is sent. Everything else waits for Welcome.
  void on_connected();
  void on_message(const pb::ToRunner& message);
  void on_disconnected();

  // This host is about to go: the daemon is to end what is here. `gone` is called once, when nothing is.
  void leave(std::function<void()> gone);

  size_t launches_held() const { return launches_.size(); }

 private:
  // Passes messages on only between Welcome and the end of the stream.
  class Gate : public Outbox {
   public:
    explicit Gate(Outbox& next) : next_(next) {}
    void send(pb::FromRunner message) override {
      if (open) next_.send(std::move(message));
    }
    bool open = false;

   private:
    Outbox& next_;
  };

  void on_welcome(const pb::Welcome& welcome);
  void on_prune_environments();
  void delete_put_away_environments();
  void on_count_environments(const pb::CountEnvironments& asked);
  std::set<LaunchId> live_launches() const;
  void remove_old_work_later();
  void remove_unused_copies();
  void copies_later();
  void on_exec(const pb::ExecOpen& open);
  void on_forward(const pb::ForwardOpen& open);
  void on_left(const pb::LeftOpen& open);
  template <typename Session>
  using Sessions = std::map<std::string, std::shared_ptr<Session>>;   // by what the daemon calls them
  // Null: it is there already, was refused, or nobody can be called back.
  template <typename Session>
  std::shared_ptr<Session> make_session(Sessions<Session>& among, size_t most, std::string_view what, const std::string& name);
  // Null: it does not.
  const HeldLaunch* launch_that_runs(const std::string& replica, uint32_t attempt);
  void on_launch(const pb::Launch& launch);
  void on_start(const pb::Start& start);
  void on_stop(const pb::Stop& stop);
  void on_forget(const pb::Forget& forget);
  void on_log_ack(const pb::LogAck& ack);
  void on_renewed(const pb::Renewed& renewed);
  HeldLaunch* find(const LaunchId& id);
  HeldLaunch* find_of(const ReplicaId& replica, uint32_t attempt);
  void say_released(const pb::HeldReplica& replica);
  void say_leaving();
  void end_when_left();
  void schedule_pump();
  void pump();
  void renew();
  pb::Inventory inventory() const;
  void report_inventory();

  boost::asio::io_context& loop_;
  AgentOptions options_;
  LaunchSite site_;
  Outbox& outbox_;
  Gate gate_;
  std::function<pb::Inventory()> inventory_;
  std::string last_inventory_;
  std::string address_;   // by which other hosts reach replicas of this one: an IP address or a name; may be empty
  FileWorker files_;
  FileWorker ends_;
  FileWorker copies_;   // asks the daemon about those of outputs
  std::atomic<bool> deletes_no_more_ = false;
  FileWorker deletions_;   // of environments, which takes minutes where they are large
  KeeperNursery keepers_;
  LaunchContext context_;
  std::map<LaunchId, std::unique_ptr<HeldLaunch>> launches_;
  Sessions<ExecSession> execs_;
  Sessions<ForwardSession> forwards_;
  Sessions<LeftSession> lefts_;
  UsageMonitor usage_;
  boost::asio::steady_timer renew_timer_;
  boost::asio::steady_timer old_work_timer_;
  WallPace wall_pace_;
  boost::asio::steady_timer copies_timer_;
  int64_t hello_sent_ms_ = 0;  // of boottime_ms()
  int64_t contact_ms_ = 0;     // when our last word was sent that the daemon has answered
  bool pump_scheduled_ = false;
  std::function<void()> gone_;   // set: this host is leaving
  bool asking_of_copies_ = false, ask_of_copies_again_ = false;
};

}  // namespace dtrain::runner
