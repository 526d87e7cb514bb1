#pragma once

#include "engine/server/tunnels.h"

namespace dtrain::engine {

Tunnels grpc_tunnels();

}  // namespace dtrain::engine
