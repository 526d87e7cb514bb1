// The loop around the pure core: events in, one transaction a turn, then messages out.
//
// Owner: daemon main. Thread: loop. Promises: nothing is sent or shown before what led to it is
// durable; when the disk takes nothing, what was decided waits and goes on by itself. One thing goes
// out before: the stops of what a person wants killed, or nothing could end what fills the disk. Never:
// decides anything that lifecycle.h, queue.h or placement.h could decide.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/lifecycle.h"
#include "daemon/output_mark.h"
#include "daemon/logs.h"
#include "daemon/metrics.h"
#include "daemon/open_metrics.h"
#include "daemon/placement.h"
#include "daemon/store.h"
#include "schema/home.h"

namespace dtrain::daemon {

// Where messages for hosts go: the runners' streams, or a test's record. A message to a host that is
// not connected is dropped: its next Hello brings everything up to date.
class RunnerOutbox {
 public:
  virtual ~RunnerOutbox() = default;
  virtual void send(const HostId& host, pb::ToRunner message) = 0;
};

class Scheduler {
 public:
  Scheduler(boost::asio::io_context& loop, const Home& home, Store& store, Logs& logs,
            Metrics& metrics, RunnerOutbox& outbox, const Policy& policy, uint64_t spool_limit_bytes);
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // A turn that follows the last one closely waits so long for more to come: in a flood of messages one
  // transaction serves many. 0, as it begins: none waits.
  void gather_for(std::chrono::microseconds time) { gather_ = time; }
  // What hosts are to see where OUTPUT_DIR lies. Without it they don't look.
  void set_output_mark(OutputMark mark) { output_mark_ = std::move(mark); }

  // Before anything is submitted: where more hosts may come from.
  void add_pool(const Pool& pool) { daemon::add_pool(model_, pool); }
  void set_quotas(std::vector<Quota> quotas) { model_.quotas = std::move(quotas); }
  void set_fair_share(std::vector<Weight> weights) { model_.fair_share = std::move(weights); }

  // Once, before anything else: what the last daemon knew. What of it can't be read is set aside.
  Status load();
  // By number, and why: nothing of them is placed, stopped or changed until somebody gives them up, for good.
  const std::map<uint32_t, Error>& unreadable() const { return unreadable_; }
  Status give_up_unreadable(uint32_t number, bool force);

  // Refuses what no connected host could ever run or be told of, unless that submission was accepted
  // before.
  Status check(const Submission& submission, const SubmissionExtras& extras);
  // While all that runs is being ended so that the daemon can end.
  void take_no_more(bool none) { takes_no_more_ = none; }
  // Refuses what waits for an experiment that there is not, or that has ended otherwise than it is to. Why it could not
  // start now, as awaited_text() has it; empty: because of others it could.
  Result<std::string> check_awaited(const Spec& spec);
  // That it could ever run as one of that user's.
  Status check_quota(const Spec& spec, const std::string& user) const;
  // Durable when it returns. Refuses what check() does.
  Result<pb::Accepted> submit(Submission submission, const SubmissionExtras& extras);
  void handle(const Event& event);
  // Runs `then` at the end of this turn: everything decided so far is durable, or the disk refused it
  // with this error and it waits.
  void at_end_of_turn(std::function<void(const Status& committed)> then);

  const Model& model() const { return model_; }
  const Observed& observed() const { return observed_; }
  // Its end is committed. Of a set (member 0): the end of all of it.
  bool is_over(const ExperimentId& id) const;
  // What is not over, as is_over() has it: how many, and the numbers they have.
  size_t live_count() const;
  std::set<uint32_t> live_numbers() const;
  // A submission and experiments of it as they are committed, from memory when live, else from the
  // store. Good until the loop goes on.
  struct Known {
    std::shared_ptr<const Submission> submission;
    // The one, or the members in order. Members that are over come without their replicas, unless a
    // member was asked for or the whole set is over.
    std::vector<const Experiment*> experiments;
    const Experiment* shared = nullptr;   // of a whole set, what its members share
    std::deque<Experiment> read;   // those of them that the model doesn't have like that

    Known() = default;
    Known(Known&&) = default;
    Known& operator=(Known&&) = default;
  };
  // Of a set (member 0) all members, else that one: none when there is no such member. DataLoss: it can't be read.
  Result<Known> find(const ExperimentId& id);
  std::filesystem::path output_dir(const ExperimentId& id) const;
  // That of the first that it comes after; empty: it comes after none.
  std::filesystem::path after_dir(const Spec& spec) const;
  // Why nothing is decided or logged at present, for people; empty: all is well. Listeners of the
  // journals are woken when it changes.
  std::string trouble() const;

  // Called on the loop after each turn that changed something, or tried to.
  std::function<void()> on_turn;

 private:
  Status load_one(uint32_t number, const Store::NotedTime& noted, TimeMs now);
  Status set_aside(uint32_t number, Error why);
  void end_turn_soon();
  void end_turn();
  Status commit();
  void send_stops_of_killed();
  void note_time();
  void set_trouble(std::string why);
  void observe(const StateChange& change);
  StoredExperiment row_of(const Experiment& experiment, TimeMs now);
  Status check_is_there(const ExperimentId& id);
  Result<std::optional<State>> end_of(const ExperimentId& id);
  Result<Experiment> committed(const ExperimentId& id,
                               std::shared_ptr<const Submission> submission);
  void lighten(Experiment& experiment);
  void keep(Effects&& effects);
  void drop_sends_to(const HostId& host);
  void close_finished(const std::set<uint32_t>& numbers);
  void close(uint32_t number);
  void arm_deadline();
  void send(const Send& send);
  void send_launch(const SendLaunch& launch);

  boost::asio::io_context& loop_;
  const Home home_;
  Store& store_;
  Logs& logs_;
  Metrics& metrics_;
  RunnerOutbox& outbox_;
  const Policy policy_;
  const uint64_t spool_limit_bytes_;
  OutputMark output_mark_;
  const std::string boot_id_;

  Model model_;
  Observed observed_;
  // Decided in this turn, or kept back by a full disk.
  std::set<ExperimentId> waiting_rows_;
  std::vector<Send> waiting_send_;
  std::vector<StateChange> waiting_notify_;
  std::map<HostId, TimeMs> revoked_stored_;
  std::set<uint32_t> unclosed_;   // over, and the store could not be told
  std::map<uint32_t, Error> unreadable_;
  std::map<uint32_t, SubmissionExtras> extras_;   // of what is live
  std::vector<ExperimentId> kills_;   // that a person asked for since the last commit
  std::vector<std::function<void(const Status&)>> at_end_of_turn_;
  std::string trouble_;   // why the last commit failed
  bool turn_posted_ = false;
  std::chrono::microseconds gather_{0};
  std::chrono::steady_clock::time_point last_turn_;
  boost::asio::steady_timer gathered_;
  boost::asio::steady_timer deadline_;
  boost::asio::steady_timer retry_;
  boost::asio::steady_timer noted_;
  bool noting_time_ = false;
  bool takes_no_more_ = false;
};

}  // namespace dtrain::daemon
