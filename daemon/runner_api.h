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

#include "daemon/blobs.h"
#include "daemon/logs.h"
#include "daemon/metrics.h"
#include "daemon/reactor.h"
#include "daemon/scheduler.h"
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

  // RunnerOutbox
  void send(const HostId& host, pb::ToRunner message) override;

  // A replica's output is durable up to `offset`: tell the host that sent it.
  void log_durable(const LogKey& key, uint64_t offset);
  // Which experiments somebody monitors; hosts report the usage of these.
  void monitor(const std::set<ExperimentId>& experiments);

  std::function<void(const pb::UsageReport&)> on_usage;
  std::function<void(const HostId&)> on_connected;
  std::function<void(const HostId&)> on_disconnected;
  std::function<void(const HostId&)> on_hung;   // its stream is being ended
  // Facts of a host that only people look at: version, cgroup kind, why it has no GPU, GPU details.
  const pb::Hello* hello(const HostId& host) const;
  // The Python environments of the connected hosts: how much they are, and that those go which nothing
  // uses.
  void count_environments(pb::PruneReply& reply) const;
  void prune_environments();
  // Ends every stream, so that the server can shut down.
  void close();

  // pb::Runner
  grpc::ServerBidiReactor<pb::FromRunner, pb::ToRunner>* Connect(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<pb::BlobPart>* Fetch(grpc::CallbackServerContext* context,
                                                const pb::FetchRequest* request) override;

 private:
  using Stream = BidiStream<pb::FromRunner, pb::ToRunner>;
  struct Connected {
    std::shared_ptr<Stream> stream;
    pb::Hello hello;
    int quiet_turns = 0;   // of the watch, since it said something
  };
  struct Dialled {
    std::string boot_id;
    uint64_t ms = 0;
  };

  void watch_silence();
  void on_message(const std::shared_ptr<Stream>& stream, HostId& host, pb::FromRunner& message);
  Connected* current(const std::shared_ptr<Stream>& stream, const HostId& host);
  Status check_newest(const Host& host, const pb::Hello& hello);
  Status on_hello(const std::shared_ptr<Stream>& stream, HostId& host, const pb::Hello& hello);
  Status on_fact(const HostId& host, const pb::FromRunner& message);
  void on_log(const std::shared_ptr<Stream>& stream, const pb::LogData& log);

  boost::asio::io_context& loop_;
  Blobs& blobs_;
  const std::chrono::milliseconds silence_;
  boost::asio::steady_timer silence_timer_;
  Scheduler* scheduler_ = nullptr;
  Logs* logs_ = nullptr;
  Metrics* metrics_ = nullptr;
  std::map<HostId, Connected> connected_;
  std::map<HostId, Dialled> newest_;   // Hello of each host, also of one that has gone again
  std::map<LogKey, HostId> log_source_;   // who sent a replica's output last
  pb::MonitorSwitch monitored_;
};

}  // namespace dtrain::daemon
