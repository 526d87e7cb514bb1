#include <grpc/support/time.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <mutex>
#include <thread>

#include "engine/server/grpc/parameter_service.grpc.pb.h"
#include "engine/server/grpc/pump.h"
#include "engine/server/grpc/tunnel.h"

namespace dtrain::engine {
namespace {

std::shared_ptr<grpc::Channel> channel_to(const std::string& address) {
  grpc::ChannelArguments arguments;
  // A server that was killed is back within moments.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 500);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // One TCP connection a worker, not one for all that connect to an address from this process.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

struct Connection {
  Socket socket;
  grpc::ClientContext context;
  std::thread thread;
  std::atomic<bool> ended = false;
};

// Else the worker tries again.
constexpr int64_t kConnect_ms = 500;
constexpr int kNoRoom_ms = 1000;  // until connections are accepted again

void carry(Connection& connection, const std::shared_ptr<grpc::Channel>& channel) {
  // After a failure no call waits for the channel, and gRPC looks at one that nobody waits for every 5 s.
  const gpr_timespec wait = gpr_time_from_millis(kConnect_ms, GPR_TIMESPAN);
  if (!channel->WaitForConnected(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), wait))) {
    ::shutdown(connection.socket.fd(), SHUT_RDWR);
    return;
  }
  const auto stub = ParameterService::NewStub(channel);
  const auto stream = stub->Exchange(&connection.context);
  std::thread answers([&] {
    pump_in(*stream, connection.socket);
    ::shutdown(connection.socket.fd(), SHUT_RDWR);
  });
  pump_out(connection.socket, *stream);
  stream->WritesDone();
  answers.join();
  stream->Finish();
}

}  // namespace

struct TunnelEntrance::Parts {
  // Stops listening, then ends what still runs.
  ~Parts() {
    const uint64_t one = 1;
    static_cast<void>(!::write(stop.get(), &one, sizeof(one)));
    for (std::thread& thread : listening) thread.join();
    for (Connection& connection : connections) {
      connection.context.TryCancel();
      ::shutdown(connection.socket.fd(), SHUT_RDWR);
      connection.thread.join();
    }
  }

  void listen(size_t server) {
    Listener& listener = listeners[server];
    while (true) {
      pollfd polled[2] = {{stop.get(), POLLIN, 0}, {listener.fd(), POLLIN, 0}};
      if (::poll(polled, 2, -1) < 0 && errno != EINTR) return;
      if (polled[0].revents != 0) return;
      auto accepted = listener.accept(Deadline::after(0));
      if (!accepted.ok()) {
        // Who waits to be accepted would wake the loop again at once.
        if (accepted.error().code != Code::DeadlineExceeded) ::poll(polled, 1, kNoRoom_ms);
        continue;
      }
      const std::scoped_lock lock(mutex);
      for (auto at = connections.begin(); at != connections.end();) {
        if (at->ended) at->thread.join();
        at = at->ended ? connections.erase(at) : std::next(at);
      }
      // gRPC's own wait after a failure ends at a time of day: somebody may set the clock back meanwhile.
      grpc::experimental::ChannelResetConnectionBackoff(channels[server].get());
      Connection& connection = connections.emplace_back();
      connection.socket = std::move(accepted).value();
      connection.thread = std::thread([&connection, channel = channels[server]] {
        carry(connection, channel);
        connection.ended = true;
      });
    }
  }

  Fd stop;
  std::vector<std::string> addresses;
  std::vector<Listener> listeners;
  std::vector<std::shared_ptr<grpc::Channel>> channels;  // by server
  std::mutex mutex;
  std::list<Connection> connections;
  std::vector<std::thread> listening;
};

Result<std::unique_ptr<TunnelEntrance>> TunnelEntrance::open(
    const std::vector<std::string>& servers) {
  auto parts = std::make_unique<Parts>();
  parts->stop = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!parts->stop) return errno_error("eventfd", errno);
  for (size_t i = 0; i < servers.size(); ++i) {
    // Unlike any other of this process or another.
    const std::string address =
        fmt::format("unix:@dtrain-tunnel-{}-{}-{}", ::getpid(), static_cast<void*>(parts.get()), i);
    TRY(auto listener, Listener::open_unix(address));
    parts->addresses.push_back(address);
    parts->listeners.push_back(std::move(listener));
    parts->channels.push_back(channel_to(servers[i]));
  }
  for (size_t i = 0; i < servers.size(); ++i) {
    parts->listening.emplace_back([raw = parts.get(), i] { raw->listen(i); });
  }
  return std::unique_ptr<TunnelEntrance>(new TunnelEntrance(std::move(parts)));
}

TunnelEntrance::TunnelEntrance(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
TunnelEntrance::~TunnelEntrance() = default;
const std::vector<std::string>& TunnelEntrance::addresses() const {
  return parts_->addresses;
}

Result<bool> tunnel_health(const std::string& address, double deadline_seconds) {
  const auto stub = ParameterService::NewStub(channel_to(address));
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  context.set_deadline(gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                                    gpr_time_from_millis(static_cast<int64_t>(deadline_seconds * 1000),
                                                         GPR_TIMESPAN)));
  HealthReply reply;
  const grpc::Status status = stub->Health(&context, HealthRequest(), &reply);
  if (!status.ok()) {
    return Error{static_cast<Code>(status.error_code()),
                 fmt::format("{}: {}", address, status.error_message()), ""};
  }
  return reply.serving();
}

}  // namespace dtrain::engine
