// Where others read open_metrics.h, by HTTP: GET /metrics. Whoever reaches the address may read; nothing can be changed there.
//
// Owner: daemon main. Thread: loop. Bounded: so many connections at a time, of which the one that was silent for longest goes when
// another comes; small requests; who says nothing is left.
// Never: keeps the daemon from starting. Where the address can't be had it goes on trying.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "daemon/acceptor.h"
#include "daemon/open_metrics.h"
#include "schema/endpoint.h"

namespace dtrain::daemon {

class MetricsEndpoint {
 public:
  using Text = std::function<std::string(MetricsFormat format)>;

  // Port 0: a free one.
  MetricsEndpoint(boost::asio::io_context& loop, const Endpoint& at, Text text);
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  const Endpoint& listens() const { return listens_; }         // port 0: it does not
  const std::string& trouble() const { return trouble_; }      // why not
  // No connection is taken any more, and those that there are end.
  void close();

 private:
  class Session;

  void listen();
  void take(boost::asio::ip::tcp::socket socket);

  boost::asio::io_context& loop_;
  const Endpoint wanted_;
  const Text text_;
  Endpoint listens_;
  std::string trouble_;
  std::list<Session*> sessions_;   // who said something last is last
  Acceptor<boost::asio::ip::tcp> acceptor_;
  boost::asio::steady_timer retry_;
};

}  // namespace dtrain::daemon
