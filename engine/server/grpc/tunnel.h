// Connections between workers and parameter servers that go through gRPC. Both ends speak to local
// sockets only, so that neither a server nor its clients know of it, and all modes work the same.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "schema/result.h"

namespace dtrain::engine {

// At a server: listens for gRPC and hands each stream to the server as a local connection.
// Owner: main. Thread: its own. May outlive the server: a stream that finds none ends.
class TunnelExit {
 public:
  // `listen`: "host:port", any port of that host if it is 0. `server`: the local address where
  // connections are handed to.
  static Result<std::unique_ptr<TunnelExit>> open(const std::string& listen, std::string server);
  ~TunnelExit();
  int port() const;

 private:
  struct Parts;
  explicit TunnelExit(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// At a worker: local addresses that lead to the servers' exits.
// Owner: main. Thread: its own. Outlives the clients that use it.
class TunnelEntrance {
 public:
  static Result<std::unique_ptr<TunnelEntrance>> open(const std::vector<std::string>& servers);
  ~TunnelEntrance();
  // One a server: ServerClientConfig::through.
  const std::vector<std::string>& addresses() const;

 private:
  struct Parts;
  explicit TunnelEntrance(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

// Whether a server that listens for gRPC at `address` takes connections.
Result<bool> tunnel_health(const std::string& address, double deadline_seconds);

}  // namespace dtrain::engine
