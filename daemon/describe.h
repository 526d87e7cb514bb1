// From the daemon's facts to what people are shown; pure.
#pragma once

#include <string>
#include <vector>

#include "daemon/model.h"
#include "schema/dtrain.pb.h"

namespace dtrain::daemon {

// One experiment or member; `model` tells why it waits.
pb::ExperimentInfo describe(const Experiment& experiment, const Model& model, TimeMs now);
// A set as a whole, from its members.
pb::ExperimentInfo describe_set(const Submission& submission,
                                const std::vector<const Experiment*>& members);
pb::ReplicaInfo describe(const Experiment& experiment, const Replica& replica,
                         const std::map<HostId, Host>& hosts);
pb::HostInfo describe(const Host& host, const Model& model, TimeMs now);

// How an experiment ended, or why it waits; empty when it runs.
std::string reason_of(const Experiment& experiment, const Model& model, TimeMs now);

}  // namespace dtrain::daemon
