#include "engine/server/doors.h"

#include "engine/comm/hash.h"
#include "engine/comm/token.h"

namespace dtrain::engine::server {

Result<Doors> Doors::open(const std::string& address, DataPath path, uint64_t job) {
  TRY(const HostPort at, parse_host_port(address));
  Doors doors;
  const auto listen_locally = [&](std::string name) -> Status {
    doors.local_address = std::move(name);
    TRY(doors.local, Listener::open_unix(doors.local_address));
    return ok();
  };
  if (path == DataPath::Grpc) {
    TRY(listen_locally(unix_address(address, new_token())));
    return doors;
  }
  // First where workers of this host look second: who finds the one finds the other. Without it TCP
  // serves them all.
  if (at.port != 0) static_cast<void>(listen_locally(unix_address(address, job)));
  TRY(const HostPort everywhere, parse_host_port(listening_address(address)));
  TRY(doors.tcp, Listener::open(everywhere.host, everywhere.port));
  if (at.port == 0) {
    static_cast<void>(listen_locally(unix_address(fmt::format("{}:{}", at.host, doors.tcp.port()), job)));
  }
  return doors;
}

std::string unix_address(const std::string& address, uint64_t job) {
  return fmt::format("unix:@dtrain-ps-{:016x}", hash_of(address, job));
}

}  // namespace dtrain::engine::server
