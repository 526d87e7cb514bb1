// How connections between workers and parameter servers travel when not as sockets of their own
// (data-path: grpc). What a tunnel is, only the program that has one knows.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "schema/result.h"

namespace dtrain::engine {

struct Tunnels {
  // Each works as long as what it returns lives.
  using Held = std::shared_ptr<void>;
  struct Entrance {
    std::vector<std::string> addresses;  // on this host, one a server
    Held held;
  };
  // At a server: what comes to `listen` goes on to `server`, an address on this host.
  std::function<Result<Held>(const std::string& listen, const std::string& server)> open_exit;
  // At a worker.
  std::function<Result<Entrance>(const std::vector<std::string>& servers)> open_entrance;
};

}  // namespace dtrain::engine
