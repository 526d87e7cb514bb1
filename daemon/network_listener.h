// Where hosts join over the network: TCP, with TLS by which both sides show certificates of this daemon's own
// authority. Who has none gets no further than the handshake; behind it there is what runners call, and nothing else.
//
// Owner: daemon main. Thread: loop. Promises: an address that is not there yet is tried again for ever.
#pragma once

#include <grpcpp/grpcpp.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <string>

#include "daemon/acceptor.h"
#include "daemon/host_keys.h"
#include "daemon/runner_api.h"

namespace dtrain::daemon {

class NetworkListener {
 public:
  // Serves what runners call. `at`: an IP address.
  static Result<std::unique_ptr<NetworkListener>> open(boost::asio::io_context& loop, RunnerApi& runners,
                                                       const HostKeys& keys, const Endpoint& at);
  NetworkListener(const NetworkListener&) = delete;
  NetworkListener& operator=(const NetworkListener&) = delete;

  // As it listens; port 0: it does not.
  const Endpoint& listens() const { return listens_; }
  const std::string& trouble() const { return trouble_; }   // why it does not; empty: it does

  // No connection is taken any more; those that were go on until shut_down().
  void close();
  // Waits for what is being answered, so long at most. On any thread.
  void shut_down(gpr_timespec deadline);

 private:
  NetworkListener(boost::asio::io_context& loop, Endpoint at);

  void listen();
  Status try_to_listen();

  using ConnectionTaker = grpc::experimental::ExternalConnectionAcceptor;

  const Endpoint at_;
  Endpoint listens_;
  std::string trouble_;
  std::unique_ptr<ConnectionTaker> taker_;
  std::unique_ptr<grpc::Server> server_;
  Acceptor<boost::asio::ip::tcp> acceptor_;
  boost::asio::steady_timer retry_;
};

}  // namespace dtrain::daemon
