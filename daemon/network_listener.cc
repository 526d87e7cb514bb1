#include "daemon/network_listener.h"

#include <grpcpp/security/server_credentials.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>

#include "daemon/outputs_api.h"
#include "schema/access_key.h"
#include "schema/config.h"
#include "schema/exec_limits.h"
#include "schema/version.h"

namespace dtrain::daemon {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr auto kRetry = std::chrono::seconds(1);
constexpr int kHandshakeMs = 10'000;
// A runner has one stream, and beside it a fetch, outputs that it carries, commands and forwarded connections; who was
// refused comes again within a second.
constexpr int kStreamsMax = 16 + kExecsMost + kForwardsMost + kLeftsMost, kIdleMs = 60'000;
// Of a host that has gone without a word, as gRPC sees it; and how often a runner may ask, see runner/link.cc.
constexpr int kAliveEveryMs = 20'000, kAliveWithinMs = 20'000, kAskedEveryMs = 5'000;

std::shared_ptr<grpc::ServerCredentials> credentials_of(const Certificate& own, const Authority& authority) {
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = authority.certificate();
  options.pem_key_cert_pairs.push_back({own.secret, own.certificate});
  return grpc::SslServerCredentials(options);
}

ino_t socket_of(int fd) {
  struct stat file {};
  return ::fstat(fd, &file) == 0 ? file.st_ino : 0;
}

}  // namespace

NetworkListener::NetworkListener(asio::io_context& loop, Endpoint at, size_t connections_max)
    : at_(std::move(at)),
      connections_max_(connections_max),
      acceptor_(
          loop,
          [this](tcp::socket socket) {
            boost::system::error_code ignored;
            socket.set_option(tcp::no_delay(true), ignored);
            ConnectionTaker::NewConnectionParameters connection;
            connection.listener_fd = acceptor_.socket().native_handle();
            connection.fd = socket.release();
            open_[connection.fd] = socket_of(connection.fd);
            taker_->HandleNewConnection(&connection);
          },
          [this] { return has_room(); }),
      retry_(loop) {}

Result<std::unique_ptr<NetworkListener>> NetworkListener::open(asio::io_context& loop,
                                                               const std::vector<grpc::Service*>& services,
                                                               const Authority& authority,
                                                               const Endpoint& at,
                                                               size_t connections_max) {
  std::unique_ptr<NetworkListener> listener(new NetworkListener(loop, at, connections_max));
  TRY(const Certificate own, authority.for_daemon());
  grpc::ServerBuilder builder;
  for (grpc::Service* service : services) builder.RegisterService(service);
  bound_threads(builder);
  builder.SetMaxReceiveMessageSize(kMessageBytesMax);
  builder.SetMaxSendMessageSize(kMessageBytesMax);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsMax);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kIdleMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kAliveEveryMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kAliveWithinMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kAskedEveryMs);
  listener->taker_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials_of(own, authority));
  listener->server_ = builder.BuildAndStart();
  if (!listener->server_) return Error{Code::Internal, "gRPC does not start for the network", ""};
  listener->listen();
  return listener;
}

void NetworkListener::listen() {
  const Status status = try_to_listen();
  if (status.ok()) {
    set_trouble("");
    std::fprintf(stderr, "listening for hosts on %s\n", to_string(listens_).c_str());
    return acceptor_.accept();
  }
  set_trouble(status.error().message);
  acceptor_.close();
  retry_.expires_after(kRetry);
  retry_.async_wait([this](boost::system::error_code stopped) {
    if (!stopped) listen();
  });
}

Status NetworkListener::try_to_listen() {
  boost::system::error_code error;
  tcp::acceptor& socket = acceptor_.socket();
  const tcp::endpoint place(asio::ip::make_address(at_.host, error), static_cast<uint16_t>(at_.port));
  if (!error) socket.open(place.protocol(), error);
  if (!error) socket.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) socket.bind(place, error);
  if (!error) socket.listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return Error{Code::Unavailable, fmt::format("can't listen on {}: {}", to_string(at_), error.message()), ""};
  }
  listens_ = {at_.host, socket.local_endpoint(error).port()};
  return ok();
}

// gRPC closes connections and does not say so.
bool NetworkListener::has_room() {
  if (open_.size() >= connections_max_) {
    std::erase_if(open_, [](const auto& connection) {
      return socket_of(connection.first) != connection.second;
    });
  }
  const bool room = open_.size() < connections_max_;
  set_trouble(room ? ""
                   : fmt::format("{} connections are open on {}, and no more are taken",
                                 open_.size(), to_string(listens_)));
  return room;
}

// Said once, however often it comes and goes.
void NetworkListener::set_trouble(std::string why) {
  trouble_ = std::move(why);
  if (trouble_.empty() || trouble_ == last_trouble_) return;
  std::fprintf(stderr, "%s; trying on\n", trouble_.c_str());
  last_trouble_ = trouble_;
}

void NetworkListener::close() {
  retry_.cancel();
  acceptor_.close();
}

void NetworkListener::shut_down(gpr_timespec deadline) { server_->Shutdown(deadline); }

Result<Endpoint> dialled_as(const NetworkListener& network, const std::string& asked, const std::string& own,
                            const Home& home, KeyOf who) {
  const auto is_dialled = [who](const std::string& host) {
    boost::system::error_code error;
    const asio::ip::address address = asio::ip::make_address(host, error);
    return is_host_address(host) || (who == KeyOf::User && ((!error && address.is_loopback()) || host == "localhost"));
  };
  Endpoint daemon = network.listens();
  if (daemon.port == 0) {
    return Error{Code::FailedPrecondition, network.trouble(),
                 fmt::format("it goes on trying; or say another address in {}, then dtrain daemon stop && dtrain daemon start",
                             home.config().string())};
  }
  if (!asked.empty()) {
    daemon.host = asked;
  } else if (!is_dialled(daemon.host)) {
    daemon.host = own;
  }
  if (is_dialled(daemon.host)) return daemon;
  return Error{Code::InvalidArgument,
               daemon.host.empty()
                   ? fmt::format("by which address {} reaches {} is not known", who == KeyOf::Host ? "the host" : "this person", to_string(network.listens()))
                   : fmt::format("'{}' is nothing that another machine can dial", daemon.host),
               "--address: an IP address of this machine or its name, without a port"};
}

}  // namespace dtrain::daemon
