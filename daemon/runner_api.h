// The runners' side of the daemon: one stream a host, its messages turned into events and back.
//
// Owner: daemon main. Thread: gRPC calls in, everything else on the loop. Promises: messages of one
// host reach the scheduler in order; a host has one stream, the newest that it dialled, in whichever
// order their Hellos come. Never: decides.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "daemon/blobs.h"
#include "daemon/caller.h"
#include "daemon/host_keys.h"
#include "daemon/logs.h"
#include "daemon/metrics.h"
#include "daemon/reactor.h"
#include "daemon/scheduler.h"
#include "daemon/seldom.h"
#include "schema/dtrain.grpc.pb.h"

namespace dtrain::daemon {

class RunnerApi : public pb::Runner::CallbackService, public RunnerOutbox {
 public:
  // A runner that says nothing for `silence` is taken for hung.
  RunnerApi(boost::asio::io_context& loop, Blobs& blobs, std::chrono::milliseconds silence);

  // Set once by main: they know each other.
  void wire(Scheduler* scheduler, Logs* logs, Metrics* metrics) {
    scheduler_ = scheduler;
    logs_ = logs;
    metrics_ = metrics;
  }

  // Who comes by the network needs one of these keys, and has its name. Set before anybody may come so.
  void guard(HostKeys* keys) { keys_ = keys; }
  // Whoever has joined by that name's key is cut off. False: nobody.
  bool cut(const std::string& key_name);
  bool has_joined_by(const std::string& key_name) const;

  // RunnerOutbox
  void send(const HostId& host, pb::ToRunner message) override;

  // A replica's output is durable up to `offset`: tell the host that sent it.
  void log_durable(const LogKey& key, uint64_t offset);
  // Which experiments somebody monitors; hosts report the usage of these.
  void monitor(const std::set<ExperimentId>& experiments);

  std::function<void(const pb::UsageReport&)> on_usage;
  std::function<void(const HostId&)> on_connected;
  std::function<void(const HostId&)> on_disconnected;
  // A host has come with a key that was lent: whose it is goes into what is known of it. An error sends it away.
  std::function<Status(const std::string& key, Host&)> on_lent;
  std::function<void(const HostId&)> on_hung;   // its stream is being ended
  // It has no stream any more: it was cut off, or dials again.
  std::function<void(const HostId&)> on_left;
  // Takes the call of a host that answers ExecOpen. Set before anybody comes.
  std::function<grpc::ServerBidiReactor<pb::ExecOutput, pb::ExecInput>*(grpc::CallbackServerContext&)> on_exec;
  // Facts of a host that only people look at: version, cgroup kind, why it has no GPU, GPU details.
  const pb::Hello* hello(const HostId& host) const;
  // What the connected hosts have and nothing uses, Python environments and sent files kept for the next run: how much
  // that is, and that it goes. Unavailable: a host has not said what it has within `patience`.
  struct Unused {
    uint32_t hosts = 0;   // that have any environment
    uint32_t count = 0;
    uint64_t bytes = 0;
    uint32_t tree_hosts = 0;   // that have any sent files
    uint64_t tree_bytes = 0;
  };
  using UnusedDone = std::function<void(Result<Unused>)>;
  void count_unused(std::chrono::milliseconds patience, UnusedDone done);
  void prune_environments();
  void prune_trees();
  // Ends every stream, so that the server can shut down.
  void close();

  // pb::Runner
  grpc::ServerBidiReactor<pb::FromRunner, pb::ToRunner>* Connect(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<pb::BlobPart>* Fetch(grpc::CallbackServerContext* context,
                                                const pb::FetchRequest* request) override;
  grpc::ServerBidiReactor<pb::ExecOutput, pb::ExecInput>* Exec(grpc::CallbackServerContext* context) override;

 private:
  using Stream = BidiStream<pb::FromRunner, pb::ToRunner>;
  struct Connected {
    std::shared_ptr<Stream> stream;
    pb::Hello hello;
    std::string key = {};  // the name of its key; empty: it is of this machine
    int quiet_turns = 0;   // of the watch, since it said something
    std::set<LogKey> refused = {};   // whose output could not be taken: the stream is about to end for it
  };
  struct Dialled {
    std::string boot_id;
    uint64_t ms = 0;
  };

  // Somebody wants to know what hosts could do without.
  struct Counting {
    explicit Counting(boost::asio::io_context& loop) : deadline(loop) {}
    std::set<HostId> awaited;
    Unused sum;
    UnusedDone done;
    boost::asio::steady_timer deadline;
  };

  void watch_silence();
  void on_unused(const HostId& host, const pb::UnusedEnvironments& unused);
  void await_no_more(const HostId& host);
  void end_counting(uint64_t question, Result<Unused> result);
  // The other end of a stream.
  struct Peer {
    Caller caller;
    HostId host = {};   // empty before its Hello
  };
  void await_hello(const std::weak_ptr<Stream>& stream, const std::shared_ptr<Peer>& peer,
                   boost::asio::steady_timer& patience);
  void on_message(const std::shared_ptr<Stream>& stream, Peer& peer, pb::FromRunner& message);
  Connected* current(const std::shared_ptr<Stream>& stream, const HostId& host);
  Status check_newest(const Host& host, const pb::Hello& hello);
  void note_refusal(const std::string& whom, const std::string& why);
  Status on_hello(const std::shared_ptr<Stream>& stream, Peer& peer, pb::Hello hello);
  Status on_fact(const HostId& host, const pb::FromRunner& message);
  // What a host says counts of replicas that it was given, and of no others.
  const Replica* find(const ReplicaId& id) const;
  bool has_output_of(const HostId& host, const ReplicaId& id, uint32_t attempt) const;
  void on_log(const std::shared_ptr<Stream>& stream, const HostId& host, const pb::LogData& log);
  void note_output(const ReplicaId& id);
  void look_at(const Experiment& experiment, const std::vector<double>& rungs);
  void look_at_last(const ReplicaId& id);
  void on_usage_of(const HostId& host, const pb::UsageReport& report);
  void refuse(const LogKey& key, const Error& why, Connected& connected);

  boost::asio::io_context& loop_;
  Blobs& blobs_;
  const std::chrono::milliseconds silence_;
  boost::asio::steady_timer silence_timer_;
  Scheduler* scheduler_ = nullptr;
  Logs* logs_ = nullptr;
  HostKeys* keys_ = nullptr;
  Seldom refusals_;  // as the log has them
  Metrics* metrics_ = nullptr;
  std::map<HostId, Connected> connected_;
  // By the name of a key, for cut(); those that have ended go when the next one comes.
  std::vector<std::pair<std::string, std::weak_ptr<WriteStream<pb::BlobPart>>>> fetches_;
  std::map<HostId, Dialled> newest_;   // Hello of each host, also of one that has gone again
  std::map<LogKey, HostId> log_source_;   // who sent a replica's output last
  pb::MonitorSwitch monitored_;
  std::map<uint64_t, Counting> countings_;   // by the question that was asked
  uint64_t next_question_ = 1;
};

}  // namespace dtrain::daemon
