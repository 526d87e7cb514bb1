// What may still run on a host whose runner is away: nobody knows of it, and nothing ends it meanwhile. Pure.
#pragma once

#include <string>

#include "schema/dtrain.pb.h"

namespace dtrain::cli {

struct AwayReplica {
  std::string replica, host;  // its name
  bool is_there() const { return !replica.empty(); }
  std::string text() const { return host + " is away, and " + replica + " may go on there until its runner is back"; }
};

// The first such replica of an experiment or member, if there is one.
AwayReplica find_away(const pb::ShowReply& reply, const pb::HostsReply& hosts);

}  // namespace dtrain::cli
