#include "cli/away.h"

#include <algorithm>

namespace dtrain::cli {

AwayReplica find_away(const pb::ShowReply& reply, const pb::HostsReply& hosts) {
  for (const pb::ReplicaInfo& replica : reply.replicas()) {
    if (replica.pid() == 0 || replica.exited()) continue;
    const bool away = std::ranges::any_of(hosts.hosts(), [&](const pb::HostInfo& host) {
      return host.id() == replica.seat().host_id() && !host.connected();
    });
    if (away) return {replica.id(), replica.seat().host_name()};
  }
  return {};
}

}  // namespace dtrain::cli
