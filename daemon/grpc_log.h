// What gRPC says of connections that it refuses goes to our log in one form, and the same is not said over and over:
// whoever is refused dials again.
#pragma once

namespace dtrain::daemon {

// Once, before anything of gRPC.
void log_grpc_errors();

}  // namespace dtrain::daemon
