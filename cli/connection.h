// The CLI's line to the daemon: of DTRAIN_HOME by its Unix socket, or elsewhere (cli/remote.h). Blocking calls.
//
// Every unary call has a deadline, so that a daemon that hangs is an error and not a hanging
// terminal. One that a dying daemon leaves without an answer is asked again, of the next daemon:
// what may be asked twice, which is all but invitations, revocations, prune and shutdown. Streams are RpcCalls (cli/rpc.h) of
// the methods below.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string_view>

#include "cli/rpc.h"
#include "schema/dtrain.pb.h"
#include "schema/home.h"
#include "schema/result.h"

namespace dtrain::cli {

struct CommandContext;

// No: FailedPrecondition when no daemon runs. IfNeeded: start one and a local runner, unless it was
// stopped by hand.
enum class Autostart { No, IfNeeded };

inline constexpr int64_t kCallTimeoutMs = 10'000;

// The streams of the service dtrain.pb.Client.
inline constexpr const char* kSubmitMethod = "/dtrain.pb.Client/Submit";
inline constexpr const char* kWatchMethod = "/dtrain.pb.Client/Watch";
inline constexpr const char* kMonitorMethod = "/dtrain.pb.Client/Monitor";
inline constexpr const char* kExecMethod = "/dtrain.pb.Client/Exec";
inline constexpr const char* kFetchMethod = "/dtrain.pb.Client/Fetch";
// And of dtrain.pb.Outputs.
inline constexpr const char* kListOutputsMethod = "/dtrain.pb.Outputs/List";
inline constexpr const char* kReadOutputsMethod = "/dtrain.pb.Outputs/Read";

class Connection {
 public:
  Connection(Home home, std::unique_ptr<Wire> wire);

  Result<pb::InfoReply> info(int64_t timeout_ms = kCallTimeoutMs);
  Result<pb::PlanReply> plan(const pb::PlanRequest& request);
  // All of it, in as many calls as it takes.
  Result<pb::ListReply> list(pb::ListRequest request);
  Result<pb::ShowReply> show(const pb::ShowRequest& request);
  Result<pb::KillReply> kill(const pb::KillRequest& request);
  Result<pb::SuspendReply> suspend(const pb::SuspendRequest& request);
  Result<pb::HostsReply> hosts();
  Result<pb::InviteReply> invite(const pb::InviteRequest& request);
  Result<pb::RevokeReply> revoke(const pb::RevokeRequest& request);
  Result<pb::InviteReply> invite_user(const pb::InviteUserRequest& request);
  Result<pb::RevokeUserReply> revoke_user(const pb::RevokeUserRequest& request);
  Result<pb::UsersReply> users();
  Result<pb::DrainReply> drain(const pb::DrainRequest& request);
  Result<pb::PruneReply> prune(const pb::PruneRequest& request);
  // With `kill` it may take as long as processes take to end: `meanwhile` is called each few seconds until they have.
  Result<pb::ShutdownReply> shutdown(const pb::ShutdownRequest& request, const std::function<void()>& meanwhile = {});

  // How the next daemon is reached. `context` must outlive this; without, nothing is asked again.
  void redial(Autostart autostart, const CommandContext& context) {
    autostart_ = autostart;
    context_ = &context;
  }

  const Home& home() const { return home_; }
  RpcChannel& channel() { return *channel_; }
  const pb::InfoReply& daemon() const { return daemon_; }  // as info() showed it last

 private:
  template <typename Reply>
  Result<Reply> ask(std::string_view method, const google::protobuf::MessageLite& request);

  Home home_;
  Autostart autostart_ = Autostart::No;
  const CommandContext* context_ = nullptr;
  std::unique_ptr<RpcChannel> channel_;
  pb::InfoReply daemon_;
};

// Connects to the daemon of the environment's home and checks that both speak the same protocol.
Result<Connection> connect(Autostart autostart, const CommandContext& context);
// The same for a home that is already open.
Result<Connection> connect(const Home& home, Autostart autostart, const CommandContext& context);

// The daemon that runs, whatever version it is: for `daemon stop` and `daemon status`. Unavailable
// when none does.
Result<Connection> connect_any_version(const Home& home, int64_t timeout_ms = kCallTimeoutMs);

// The project a person stands in: the nearest directory upwards with a dtrain.yml or riseml.yml,
// else the current one.
std::filesystem::path project_root();
// The same as the daemon knows it: what SubmitHeader.project_dir holds and what "newest experiment"
// means.
std::string project_dir();

}  // namespace dtrain::cli
