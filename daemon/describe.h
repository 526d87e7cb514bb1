// From the daemon's facts to what people are shown; pure.
#pragma once

#include <string>
#include <vector>

#include "daemon/model.h"
#include "schema/dtrain.pb.h"

namespace dtrain::daemon {

// One experiment or member.
pb::ExperimentInfo describe(const Experiment& experiment);
// A set as a whole, from its members.
pb::ExperimentInfo describe_set(const Submission& submission,
                                const std::vector<const Experiment*>& members);
pb::ReplicaInfo describe(const Experiment& experiment, const Replica& replica,
                         const std::map<HostId, Host>& hosts);
pb::HostInfo describe(const Host& host, const Model& model, TimeMs now);

// How an experiment ended or why it waits, with what a person can do.
struct Reason {
  std::string text;
  std::string hint;
};
Reason reason_of(const Experiment& experiment);

}  // namespace dtrain::daemon
