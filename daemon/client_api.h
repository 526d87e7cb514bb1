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
#include "daemon/rights.h"
#include "daemon/scheduler.h"
#include "daemon/user_keys.h"
#include "daemon/user_streams.h"
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
  const Pools* pools = nullptr;   // null: none is configured
  std::string address = {};  // by which other hosts reach this one, as config.yml says; may be empty
  const MetricsEndpoint* open_metrics = nullptr;   // null: none is configured
  std::chrono::milliseconds submission_patience = std::chrono::minutes(5);
};

class ClientApi : public pb::Client::CallbackService {
 public:
  explicit ClientApi(const DaemonParts& parts);

  // Where hosts and people with a key come in, and who these may be; before that is set this machine's alone do.
  void listens_on(const NetworkListener* network, UserKeys* users) {
    network_ = network;
    users_ = users;
  }

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
  grpc::ServerUnaryReactor* InviteUser(grpc::CallbackServerContext*, const pb::InviteUserRequest*,
                                       pb::InviteReply*) override;
  grpc::ServerUnaryReactor* RevokeUser(grpc::CallbackServerContext*, const pb::RevokeUserRequest*,
                                       pb::RevokeUserReply*) override;
  grpc::ServerUnaryReactor* Users(grpc::CallbackServerContext*, const pb::UsersRequest*, pb::UsersReply*) override;
  grpc::ServerUnaryReactor* Prune(grpc::CallbackServerContext*, const pb::PruneRequest*,
                                  pb::PruneReply*) override;
  grpc::ServerUnaryReactor* Shutdown(grpc::CallbackServerContext*, const pb::ShutdownRequest*,
                                     pb::ShutdownReply*) override;

 private:
  // PermissionDenied: by a key that is none of a person, or of none any more.
  Result<Person> person_of(const grpc::CallbackServerContext& call) const;
  grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, std::function<Status(const Person&)> answer);
  // The same, of admins alone.
  grpc::ServerUnaryReactor* answer_admin(grpc::CallbackServerContext* context, std::string_view what, std::function<Status()> answer);
  grpc::ServerUnaryReactor* durable_answer(grpc::CallbackServerContext* context, std::function<Status(const Person&)> answer,
                                           std::function<Status(const Status& committed)> then);
  template <class Stream>
  Stream* until_revoked(const grpc::CallbackServerContext& call, const Person& person, const std::shared_ptr<Stream>& stream);

  Status info(pb::InfoReply& reply);
  Status plan_for(const Person& person, const pb::PlanRequest& request, pb::PlanReply& reply);
  Status list(const pb::ListRequest& request, pb::ListReply& reply);
  Status add_unreadable(const std::string& project_dir, std::vector<uint32_t>& numbers);
  Status add_to_list(uint32_t number, bool members, pb::ListReply& reply);
  Result<ExperimentId> id_of(const Person& person, const pb::ShowRequest& request);
  Status show(const Person& person, const pb::ShowRequest& request, pb::ShowReply& reply);
  Result<Metrics::Values> metrics_of(const Submission& submission);
  void add_members(const std::vector<const Experiment*>& members, const Metrics::Values& metrics,
                   pb::ShowReply& reply);
  std::string holds_up(const Scheduler::Known& known, const ExperimentId& id) const;
  Status kill(const Person& person, const pb::KillRequest& request, pb::KillReply& reply);
  Status check_whole(const Person& person, const std::string& id, std::string_view verb);
  Status check_each_whole(const Person& person, const google::protobuf::RepeatedPtrField<std::string>& ids, std::string_view verb);
  Status suspend(const Person& person, const pb::SuspendRequest& request, pb::SuspendReply& reply);
  Status add_states(pb::SuspendReply& reply);
  Status kill_one(const std::string& id, bool force, const std::string& by, pb::KillReply::Item& item);
  Status hosts(pb::HostsReply& reply);
  Status check_listens() const;
  Status invite(const pb::InviteRequest& request, pb::InviteReply& reply);
  Status revoke(const pb::RevokeRequest& request, pb::RevokeReply& reply);
  Status drain(const pb::DrainRequest& request, pb::DrainReply& reply);
  Status invite_user(const pb::InviteUserRequest& request, pb::InviteReply& reply);
  Status revoke_user(const pb::RevokeUserRequest& request, pb::RevokeUserReply& reply);
  Status users(const Person& person, pb::UsersReply& reply);
  Status may_prune(const Person& person, const pb::PruneRequest& request) const;
  std::vector<std::string> running_replicas() const;
  void finish_stop(const grpc::Status& status);
  void give_up_stop_in(std::chrono::seconds time);

  DaemonParts parts_;
  const NetworkListener* network_ = nullptr;
  UserKeys* users_ = nullptr;
  UserStreams user_streams_;
  const uint64_t started_unix_ms_;
  std::shared_ptr<LateAnswer> stopping_;   // a `daemon stop --kill` that waits
  boost::asio::steady_timer stop_given_up_;
};

}  // namespace dtrain::daemon
