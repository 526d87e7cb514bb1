// Where hosts join over the network: TCP, with TLS by which both sides show certificates of this daemon's own
// authority. Who has none gets no further than the handshake; behind it there is what runners call, and nothing else.
//
// Owner: daemon main. Thread: loop. Promises: an address that is not there yet is tried again for ever.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/types.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/acceptor.h"
#include "daemon/authority.h"
#include "schema/access_key.h"
#include "schema/endpoint.h"
#include "schema/home.h"

namespace dtrain::daemon {

class NetworkListener {
 public:
  // `services`: what runners call, and people; each knows who they are by their certificates. `at`: an IP address. With `connections_max` open no more are taken
  // until one ends: strangers may come in any number, and this machine's own are not to want for
  // descriptors and memory.
  static Result<std::unique_ptr<NetworkListener>> open(boost::asio::io_context& loop,
                                                       const std::vector<grpc::Service*>& services,
                                                       const Authority& authority,
                                                       const Endpoint& at, size_t connections_max);
  NetworkListener(const NetworkListener&) = delete;
  NetworkListener& operator=(const NetworkListener&) = delete;

  // As it listens; port 0: it does not.
  const Endpoint& listens() const { return listens_; }
  const std::string& trouble() const {
    return trouble_;
  }  // why it does not, or takes nobody; empty: it does

  // No connection is taken any more; those that were go on until shut_down().
  void close();
  // Waits for what is being answered, so long at most. On any thread.
  void shut_down(gpr_timespec deadline);

 private:
  NetworkListener(boost::asio::io_context& loop, Endpoint at, size_t connections_max);

  bool has_room();
  void set_trouble(std::string why);
  void listen();
  Status try_to_listen();

  using ConnectionTaker = grpc::experimental::ExternalConnectionAcceptor;

  const Endpoint at_;
  const size_t connections_max_;
  Endpoint listens_;
  std::string trouble_;
  std::string last_trouble_;
  std::map<int, ino_t> open_;  // connections, and some that have ended: by descriptor its socket
  std::unique_ptr<ConnectionTaker> taker_;
  std::unique_ptr<grpc::Server> server_;
  Acceptor<boost::asio::ip::tcp> acceptor_;
  boost::asio::steady_timer retry_;
};

// How another host reaches it: by `asked`, else as it listens, else by `own`, of config.yml below `home`. People may be on this
// machine, with another account: to them loopback will do.
Result<Endpoint> dialled_as(const NetworkListener& network, const std::string& asked, const std::string& own,
                            const Home& home, KeyOf who = KeyOf::Host);

}  // namespace dtrain::daemon
