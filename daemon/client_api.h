// The people's side of the daemon: every call of the CLI.
//
// Owner: daemon main. Thread: gRPC calls in; each answer is made on the loop. Never: keeps anything of
// its own; it asks the scheduler, the store and the logs.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "daemon/blobs.h"
#include "daemon/exec_relay.h"
#include "daemon/host_keys.h"
#include "daemon/metrics_endpoint.h"
#include "daemon/monitor.h"
#include "daemon/network_listener.h"
#include "daemon/pools.h"
#include "daemon/pruner.h"
#include "daemon/runner_api.h"
#include "daemon/scheduler.h"
#include "schema/dtrain.grpc.pb.h"
#include "schema/home.h"

namespace dtrain::daemon {

// The parts a call may need; all outlive the API.
struct DaemonParts {
  boost::asio::io_context& loop;
  const Home& home;
  Store& store;
  Blobs& blobs;
  Logs& logs;
  Metrics& metrics;
  Scheduler& scheduler;
  RunnerApi& runners;
  Monitor& monitor;
  Pruner& pruner;
  ExecRelay& exec;
  // Of hosts that join over the network. Null where the daemon is not to listen there.
  HostKeys* keys = nullptr;
  const NetworkListener* network = nullptr;
  const Pools* pools = nullptr;   // null: none is configured
  std::string address = {};  // by which other hosts reach this one, as config.yml says; may be empty
  const MetricsEndpoint* open_metrics = nullptr;   // null: none is configured
};

class ClientApi : public pb::Client::CallbackService {
 public:
  explicit ClientApi(const DaemonParts& parts);

  // Ends the daemon once the reply is out.
  std::function<void()> on_stop;
  // Call after each turn: a `daemon stop --kill` waits for everything to be over, while the disk can
  // be written.
  void after_turn();
  // Answers a `daemon stop --kill` that still waits: the daemon ends for another reason.
  void abandon_stop();

  grpc::ServerUnaryReactor* Info(grpc::CallbackServerContext*, const pb::InfoRequest*,
                                 pb::InfoReply*) override;
  grpc::ServerBidiReactor<pb::SubmitRequest, pb::SubmitReply>* Submit(
      grpc::CallbackServerContext*) override;
  grpc::ServerUnaryReactor* Plan(grpc::CallbackServerContext*, const pb::PlanRequest*,
                                 pb::PlanReply*) override;
  grpc::ServerUnaryReactor* List(grpc::CallbackServerContext*, const pb::ListRequest*,
                                 pb::ListReply*) override;
  grpc::ServerUnaryReactor* Show(grpc::CallbackServerContext*, const pb::ShowRequest*,
                                 pb::ShowReply*) override;
  grpc::ServerUnaryReactor* Kill(grpc::CallbackServerContext*, const pb::KillRequest*,
                                 pb::KillReply*) override;
  grpc::ServerUnaryReactor* Suspend(grpc::CallbackServerContext*, const pb::SuspendRequest*,
                                    pb::SuspendReply*) override;
  grpc::ServerWriteReactor<pb::WatchBatch>* Watch(grpc::CallbackServerContext*,
                                                  const pb::WatchRequest*) override;
  grpc::ServerWriteReactor<pb::MonitorSample>* Monitor(grpc::CallbackServerContext*,
                                                       const pb::MonitorRequest*) override;
  grpc::ServerBidiReactor<pb::ExecInput, pb::ExecOutput>* Exec(grpc::CallbackServerContext*) override;
  grpc::ServerWriteReactor<pb::BlobPart>* Fetch(grpc::CallbackServerContext*, const pb::FetchRequest*) override;
  grpc::ServerUnaryReactor* Hosts(grpc::CallbackServerContext*, const pb::HostsRequest*,
                                  pb::HostsReply*) override;
  grpc::ServerUnaryReactor* Invite(grpc::CallbackServerContext*, const pb::InviteRequest*,
                                   pb::InviteReply*) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext*, const pb::DrainRequest*,
                                  pb::DrainReply*) override;
  grpc::ServerUnaryReactor* Revoke(grpc::CallbackServerContext*, const pb::RevokeRequest*,
                                   pb::RevokeReply*) override;
  grpc::ServerUnaryReactor* Prune(grpc::CallbackServerContext*, const pb::PruneRequest*,
                                  pb::PruneReply*) override;
  grpc::ServerUnaryReactor* Shutdown(grpc::CallbackServerContext*, const pb::ShutdownRequest*,
                                     pb::ShutdownReply*) override;

 private:
  template <typename Answer>
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, Answer answer);
  grpc::ServerUnaryReactor* durable_answer(std::function<Status()> answer,
                                           std::function<Status(const Status& committed)> then);

  Status info(pb::InfoReply& reply);
  Status plan_for(const pb::PlanRequest& request, pb::PlanReply& reply);
  Status list(const pb::ListRequest& request, pb::ListReply& reply);
  Status add_to_list(uint32_t number, bool members, pb::ListReply& reply);
  Result<ExperimentId> id_of(const pb::ShowRequest& request);
  Status show(const pb::ShowRequest& request, pb::ShowReply& reply);
  Result<Metrics::Values> metrics_of(const Submission& submission);
  void add_members(const std::vector<const Experiment*>& members, const Metrics::Values& metrics,
                   pb::ShowReply& reply);
  std::string holds_up(const Scheduler::Known& known, const ExperimentId& id) const;
  Status kill(const pb::KillRequest& request, pb::KillReply& reply);
  Status check_whole(const std::string& id, std::string_view verb);
  Status check_each_whole(const google::protobuf::RepeatedPtrField<std::string>& ids, std::string_view verb);
  Status suspend(const pb::SuspendRequest& request, pb::SuspendReply& reply);
  Status add_states(pb::SuspendReply& reply);
  Status kill_one(const std::string& id, bool force, pb::KillReply::Item& item);
  Status hosts(pb::HostsReply& reply);
  Status check_listens() const;
  Status invite(const pb::InviteRequest& request, pb::InviteReply& reply);
  Status revoke(const pb::RevokeRequest& request, pb::RevokeReply& reply);
  Status drain(const pb::DrainRequest& request, pb::DrainReply& reply);
  std::vector<std::string> running_replicas() const;
  void finish_stop(const grpc::Status& status);
  void give_up_stop_in(std::chrono::seconds time);

  DaemonParts parts_;
  const uint64_t started_unix_ms_;
  std::shared_ptr<LateAnswer> stopping_;   // a `daemon stop --kill` that waits
  boost::asio::steady_timer stop_given_up_;
};

}  // namespace dtrain::daemon
