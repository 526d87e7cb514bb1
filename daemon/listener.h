// The daemon's Unix socket: takes connections and hands each to the gRPC server.
//
// Owner: daemon main. Thread: loop.
#pragma once

#include <grpcpp/server.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <filesystem>

#include "daemon/acceptor.h"
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
  std::filesystem::path path_;
  Acceptor<boost::asio::local::stream_protocol> acceptor_;
};

}  // namespace dtrain::daemon
