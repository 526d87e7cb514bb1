// The daemon's Unix socket: takes connections and hands each to the gRPC server.
//
// Owner: daemon main. Thread: loop. Why not gRPC's own listener: it stops for good at the first accept()
// that finds no free descriptor. This one waits until there are some.
#pragma once

#include <grpcpp/server.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <filesystem>

#include "schema/result.h"

namespace dtrain::daemon {

class Listener {
 public:
  Listener(boost::asio::io_context& loop, grpc::Server& server);
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Only the user of this process may connect. A socket file that is there is replaced: the caller has
  // made sure that nobody listens on it.
  Status listen(const std::filesystem::path& path);
  // No connection is taken any more, and the file goes; connections that were taken go on.
  void close();

 private:
  using Protocol = boost::asio::local::stream_protocol;

  void accept();

  grpc::Server& server_;
  std::filesystem::path path_;
  Protocol::acceptor acceptor_;
  boost::asio::steady_timer retry_;
};

}  // namespace dtrain::daemon
