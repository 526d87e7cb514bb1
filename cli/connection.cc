#include "cli/connection.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <vector>

#include "cli/autostart.h"
#include "cli/command.h"
#include "schema/dtrain.grpc.pb.h"
#include "schema/version.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

namespace {

// A list of 200,000 members is a large answer; a line of text of one is small.
constexpr int kReplyMaxBytes = 256 << 20;

// `daemon stop --kill` waits for the graces of everything that runs.
constexpr int64_t kEndAllTimeoutMs = 120'000;

std::shared_ptr<grpc::Channel> open_channel(const Home& home) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kReplyMaxBytes);
  // The daemon is on this machine: a proxy from the environment must not get in between, and a
  // daemon that restarts is tried again soon.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  // How long one attempt may take: longer than any call, so that a daemon that hangs is told from
  // one that went away.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 20'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1'000);
  auto channel = grpc::CreateCustomChannel("unix:" + home.socket().string(),
                                           grpc::InsecureChannelCredentials(), arguments);
  // Kept up to the end of the process, which is near: taking gRPC down would join its threads and cost
  // every command 3 ms.
  static auto& kept = *new std::vector<std::shared_ptr<grpc::Channel>>();
  kept.push_back(channel);
  return channel;
}

template <typename Reply, typename Request, typename Method>
Result<Reply> call(pb::Client::Stub& stub, Method method, const Request& request,
                   int64_t timeout_ms = kCallTimeoutMs) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(timeout_ms));
  Reply reply;
  const grpc::Status status = (stub.*method)(&context, request, &reply);
  if (!status.ok()) return error_of(status);
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

struct Connection::Stub {
  std::unique_ptr<pb::Client::Stub> client;
};

Connection::Connection(Home home, std::shared_ptr<grpc::Channel> channel, pb::InfoReply info)
    : home_(std::move(home)),
      channel_(std::move(channel)),
      info_(std::move(info)),
      stub_(std::make_unique<Stub>(Stub{pb::Client::NewStub(channel_)})) {}

Connection::Connection(Connection&&) noexcept = default;
Connection& Connection::operator=(Connection&&) noexcept = default;
Connection::~Connection() = default;

Result<pb::InfoReply> Connection::info(int64_t timeout_ms) {
  return call<pb::InfoReply>(*stub_->client, &pb::Client::Stub::Info, pb::InfoRequest(),
                             timeout_ms);
}

Result<pb::PlanReply> Connection::plan(const pb::PlanRequest& request) {
  return call<pb::PlanReply>(*stub_->client, &pb::Client::Stub::Plan, request);
}

Result<pb::ListReply> Connection::list(const pb::ListRequest& request) {
  return call<pb::ListReply>(*stub_->client, &pb::Client::Stub::List, request);
}

Result<pb::ShowReply> Connection::show(const pb::ShowRequest& request) {
  return call<pb::ShowReply>(*stub_->client, &pb::Client::Stub::Show, request);
}

Result<pb::KillReply> Connection::kill(const pb::KillRequest& request) {
  return call<pb::KillReply>(*stub_->client, &pb::Client::Stub::Kill, request);
}

Result<pb::HostsReply> Connection::hosts() {
  return call<pb::HostsReply>(*stub_->client, &pb::Client::Stub::Hosts, pb::HostsRequest());
}

Result<pb::ShutdownReply> Connection::shutdown(const pb::ShutdownRequest& request) {
  return call<pb::ShutdownReply>(*stub_->client, &pb::Client::Stub::Shutdown, request,
                                 request.kill() ? kEndAllTimeoutMs : kCallTimeoutMs);
}

Result<Connection> connect_any_version(const Home& home, int64_t timeout_ms) {
  TRY(const Listener listener, find_listener(home));
  Connection connection(home, open_channel(home), {});
  auto info = connection.info(timeout_ms);
  if (!info.ok()) {
    Error error = std::move(info).error();
    if (error.code != Code::DeadlineExceeded) return error;
    return Error{Code::DeadlineExceeded,
                 fmt::format("the daemon (pid {}) does not answer", listener.pid),
                 fmt::format("look into {}; ending it (kill -9 {}) harms no training",
                             home.daemon_log().string(), listener.pid)};
  }
  return Connection(home, connection.channel(), std::move(info).value());
}

Result<Connection> connect(const Home& home, Autostart autostart, const CommandContext& context) {
  auto connected = connect_any_version(home);
  // Unavailable: nobody listens, or the daemon ended between the look and the call.
  if (!connected.ok() && connected.error().code == Code::Unavailable &&
      autostart == Autostart::IfNeeded) {
    TRY(start_daemon(home, context.program, StartAs::Automatic));
    connected = connect_any_version(home);
  }
  if (!connected.ok()) return std::move(connected).error();
  TRY(check_protocol(connected.value().daemon()));
  return connected;
}

Result<Connection> connect(Autostart autostart, const CommandContext& context) {
  TRY(const Home home, home_from_environment());
  return connect(home, autostart, context);
}

Error error_of(const grpc::Status& status) {
  const grpc::StatusCode code = status.error_code();
  if (code == grpc::StatusCode::UNAVAILABLE) {
    return {Code::Unavailable, "the connection to the daemon broke",
            "dtrain daemon status tells whether it runs; training is not affected"};
  }
  if (code == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return {Code::DeadlineExceeded,
            fmt::format("the daemon did not answer within {} s", kCallTimeoutMs / 1000),
            "dtrain daemon status tells more; training is not affected"};
  }
  // The rest are Code's own values, but for three that the daemon never sends.
  const bool known = code != grpc::StatusCode::UNKNOWN &&
                     code != grpc::StatusCode::UNAUTHENTICATED &&
                     code != grpc::StatusCode::OUT_OF_RANGE;
  return {known ? static_cast<Code>(code) : Code::Internal, status.error_message(),
          status.error_details()};
}

std::string project_dir() {
  std::error_code failed;
  const fs::path here = fs::current_path(failed);
  if (failed) return "";
  for (fs::path at = here; !at.empty(); at = at.parent_path()) {
    if (fs::exists(at / "dtrain.yml", failed) || fs::exists(at / "riseml.yml", failed)) {
      return at.string();
    }
    if (at == at.root_path()) break;
  }
  return here.string();
}

}  // namespace dtrain::cli
