// Where workers come to a server.
#pragma once

#include <cstdint>
#include <string>

#include "engine/comm/socket.h"
#include "schema/engine_spec.h"

namespace dtrain::engine::server {

// Owner: the server, or what hears of its data before there is one.
struct Doors {
  // At "host:port", any port of that host if it is 0, and for workers on this host.
  // data-path: grpc: for a tunnel alone, that ends on this host.
  static Result<Doors> open(const std::string& address, DataPath path, uint64_t job);

  Listener tcp, local;
  std::string local_address;
};

// Where a server at `address` listens for workers of its own host, who need no TCP.
std::string unix_address(const std::string& address, uint64_t job);

}  // namespace dtrain::engine::server
