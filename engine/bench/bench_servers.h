// How fast a worker and its parameter servers exchange gradients for parameters, by each way that
// data can travel, beside what the ways themselves can do.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/server/tunnels.h"
#include "schema/result.h"

namespace dtrain::engine {

enum class ServerWay { Unix, Tcp, Grpc };
const char* to_string(ServerWay way);

struct ServerRate {
  int64_t bytes = 0;  // of an arena: so many are pushed, and as many come back
  int servers = 1;
  ServerWay way = ServerWay::Unix;
  double seconds = 0;  // of a push that is answered by parameters, applied in between
  // The ceilings: two copies in memory; the same bytes there and back through a bare socket of that
  // way (gRPC: TCP).
  double memcpy_seconds = 0, socket_seconds = 0;
  double bytes_per_second() const { return 2 * static_cast<double>(bytes) / seconds; }
};

// Medians of interleaved rounds; servers are processes of their own. Forks: call it while there is
// one thread. Without tunnels there is no Grpc.
Result<std::vector<ServerRate>> bench_servers(std::span<const int64_t> sizes_bytes,
                                              std::span<const int> counts, const Tunnels& tunnels);

}  // namespace dtrain::engine
