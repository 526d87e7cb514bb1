#include "cli/connection.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "cli/autostart.h"
#include "cli/command.h"
#include "cli/errors.h"
#include "cli/remote.h"
#include "cli/signals.h"
#include "schema/clock.h"
#include "schema/version.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

namespace {

// `daemon stop --kill` waits for the graces of everything that runs.
constexpr int64_t kEndAllTimeoutMs = 120'000;

// It deletes files, and waits for submissions that go on.
constexpr int64_t kPruneTimeoutMs = 600'000;

constexpr int kDialsMax = 5;

template <typename Reply>
Result<Reply> call(RpcChannel& channel, std::string_view method,
                   const google::protobuf::MessageLite& request,
                   int64_t timeout_ms = kCallTimeoutMs) {
  RpcCall call(channel, fmt::format("/dtrain.pb.Client/{}", method), timeout_ms);
  call.write(request);
  call.writes_done();
  Reply reply;
  const bool answered = call.read(reply);
  TRY(call.finish());
  if (!answered) return Error{Code::Internal, "the daemon ended a call without an answer", ""};
  return reply;
}

Status check_protocol(const pb::InfoReply& info) {
  if (info.protocol() == kProtocol) return ok();
  const bool daemon_is_older = info.protocol() < kProtocol;
  return Error{
      Code::FailedPrecondition,
      fmt::format("the daemon (pid {}) is dtrain {} with protocol {}; this is dtrain {} with "
                  "protocol {}",
                  info.pid(), info.version(), info.protocol(), kVersion, kProtocol),
      daemon_is_older ? "upgrade the daemon: dtrain daemon stop && dtrain daemon start; what runs "
                        "goes on meanwhile"
                      : "upgrade this dtrain to the daemon's version"};
}

}  // namespace

Connection::Connection(Home home, std::unique_ptr<Wire> wire)
    : home_(std::move(home)), channel_(std::make_unique<RpcChannel>(std::move(wire))) {}

template <typename Reply>
Result<Reply> Connection::ask(std::string_view method,
                              const google::protobuf::MessageLite& request) {
  auto reply = call<Reply>(*channel_, method, request);
  for (int tries = 1; tries < kDialsMax; ++tries) {
    if (reply.ok() || reply.error().code != Code::Unavailable || context_ == nullptr) break;
    TRY(Connection fresh, connect(home_, autostart_, *context_));
    channel_ = std::move(fresh.channel_);
    daemon_ = std::move(fresh.daemon_);
    reply = call<Reply>(*channel_, method, request);
  }
  return reply;
}

Result<pb::InfoReply> Connection::info(int64_t timeout_ms) {
  TRY(daemon_, call<pb::InfoReply>(*channel_, "Info", pb::InfoRequest(), timeout_ms));
  return daemon_;
}

Result<pb::PlanReply> Connection::plan(const pb::PlanRequest& request) {
  return ask<pb::PlanReply>("Plan", request);
}

Result<pb::ListReply> Connection::list(pb::ListRequest request) {
  pb::ListReply all;
  do {
    TRY(const pb::ListReply some, ask<pb::ListReply>("List", request));
    all.mutable_experiments()->MergeFrom(some.experiments());
    request.set_from(some.next());
  } while (request.from() != 0);
  return all;
}

Result<pb::ShowReply> Connection::show(const pb::ShowRequest& request) {
  return ask<pb::ShowReply>("Show", request);
}

Result<pb::KillReply> Connection::kill(const pb::KillRequest& request) {
  return ask<pb::KillReply>("Kill", request);
}

Result<pb::SuspendReply> Connection::suspend(const pb::SuspendRequest& request) {
  return ask<pb::SuspendReply>("Suspend", request);
}

Result<pb::HostsReply> Connection::hosts() {
  return ask<pb::HostsReply>("Hosts", pb::HostsRequest());
}

Result<pb::InviteReply> Connection::invite(const pb::InviteRequest& request) {
  return call<pb::InviteReply>(*channel_, "Invite", request);
}

Result<pb::RevokeReply> Connection::revoke(const pb::RevokeRequest& request) {
  return call<pb::RevokeReply>(*channel_, "Revoke", request);
}

Result<pb::InviteReply> Connection::invite_user(const pb::InviteUserRequest& request) {
  return call<pb::InviteReply>(*channel_, "InviteUser", request);
}

Result<pb::RevokeUserReply> Connection::revoke_user(const pb::RevokeUserRequest& request) {
  return call<pb::RevokeUserReply>(*channel_, "RevokeUser", request);
}

Result<pb::UsersReply> Connection::users() {
  return ask<pb::UsersReply>("Users", pb::UsersRequest());
}

Result<pb::DrainReply> Connection::drain(const pb::DrainRequest& request) {
  return call<pb::DrainReply>(*channel_, "Drain", request);
}

Result<pb::PruneReply> Connection::prune(const pb::PruneRequest& request) {
  return call<pb::PruneReply>(*channel_, "Prune", request, kPruneTimeoutMs);
}

Result<pb::ShutdownReply> Connection::shutdown(const pb::ShutdownRequest& request, const std::function<void()>& meanwhile) {
  constexpr int64_t kEachMs = 3'000;
  RpcCall call(*channel_, "/dtrain.pb.Client/Shutdown", request.kill() ? kEndAllTimeoutMs : kCallTimeoutMs);
  call.write(request);
  call.writes_done();
  pb::ShutdownReply reply;
  bool answered = false;
  int64_t next_ms = boottime_ms() + kEachMs;
  while (meanwhile) {
    answered = call.take(reply);
    if (answered || call.ended()) break;
    if (boottime_ms() >= next_ms) {
      meanwhile();
      next_ms = boottime_ms() + kEachMs;
      continue;   // what it asked may have brought the answer, too
    }
    wait_readable(call.fd(), -1, std::max<int64_t>(next_ms - boottime_ms(), 0));
  }
  answered = answered || call.read(reply);
  TRY(call.finish());
  if (!answered) return Error{Code::Internal, "the daemon ended a call without an answer", ""};
  return reply;
}

Result<Connection> connect_any_version(const Home& home, int64_t timeout_ms) {
  TRY(Listener listener, find_listener(home));
  Connection connection(home, std::make_unique<SocketWire>(std::move(listener.socket)));
  const auto info = connection.info(timeout_ms);
  if (info.ok()) return connection;
  if (info.error().code != Code::DeadlineExceeded) return info.error();
  return Error{Code::DeadlineExceeded,
               fmt::format("the daemon (pid {}) does not answer", listener.pid),
               fmt::format("look into {}; ending it (kill -9 {}) harms no training",
                           home.daemon_log().string(), listener.pid)};
}

namespace {

Result<Connection> connect_somewhere(const Home& home, Autostart autostart) {
  const std::string machine = remote_machine();
  if (machine.empty()) return connect_any_version(home);
  TRY(std::unique_ptr<Wire> wire, dial_there(machine, autostart == Autostart::IfNeeded));
  Connection connection(home, std::move(wire));
  TRY(connection.info());
  return connection;
}

}  // namespace

Result<Connection> connect(const Home& home, Autostart autostart, const CommandContext& context) {
  auto connected = connect_somewhere(home, autostart);
  // Unavailable: nobody listens, or the daemon ended between the look and the call.
  if (!connected.ok() && connected.error().code == Code::Unavailable &&
      autostart == Autostart::IfNeeded && remote_machine().empty()) {
    TRY(start_daemon(home, context.program, StartAs::Automatic));
    connected = connect_any_version(home);
  }
  if (!connected.ok()) return std::move(connected).error();
  TRY(check_protocol(connected.value().daemon()));
  connected.value().redial(autostart, context);
  // Whatever is asked next may wait for that.
  const std::string& trouble = connected.value().daemon().trouble();
  if (!trouble.empty()) print_error({Code::Unavailable, trouble, ""}, false);
  return connected;
}

Result<Connection> connect(Autostart autostart, const CommandContext& context) {
  TRY(const Home home, home_from_environment());
  return connect(home, autostart, context);
}

std::filesystem::path project_root() {
  std::error_code failed;
  const fs::path here = fs::current_path(failed);
  if (failed) return "";
  for (fs::path at = here; !at.empty(); at = at.parent_path()) {
    if (fs::exists(at / "dtrain.yml", failed) || fs::exists(at / "riseml.yml", failed)) {
      return at;
    }
    if (at == at.root_path()) break;
  }
  return here;
}

std::string project_dir() {
  // By a dtrain of another machine.
  const char* told = std::getenv("DTRAIN_PROJECT");
  return told != nullptr && *told != '\0' ? told : name_of_project(project_root());
}

}  // namespace dtrain::cli
