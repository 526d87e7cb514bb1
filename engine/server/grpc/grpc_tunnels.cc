#include "engine/server/grpc/grpc_tunnels.h"

#include "engine/server/grpc/tunnel.h"

namespace dtrain::engine {

Tunnels grpc_tunnels() {
  return {
      .open_exit = [](const std::string& listen,
                      const std::string& server) -> Result<Tunnels::Held> {
        TRY(auto exit, TunnelExit::open(listen, server));
        return Tunnels::Held(std::move(exit));
      },
      .open_entrance = [](const std::vector<std::string>& servers) -> Result<Tunnels::Entrance> {
        TRY(auto entrance, TunnelEntrance::open(servers));
        std::vector<std::string> addresses = entrance->addresses();
        return Tunnels::Entrance{std::move(addresses), Tunnels::Held(std::move(entrance))};
      }};
}

}  // namespace dtrain::engine
