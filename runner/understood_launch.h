// What a launch says, read: the Spec of its member, and who of the gang is here. Pure.
#pragma once

#include <vector>

#include "schema/cluster_env.h"
#include "schema/dtrain.pb.h"
#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain::runner {

struct Understood {
  Spec spec;
  std::vector<Seat> gang;
  std::vector<Seat> here;   // not empty
};
// Internal: a replica without a seat or a role.
Result<Understood> understand(const pb::Launch& launch);

// Its rights and limits are those of what it is for, which has not begun.
inline bool is_build(const ReplicaId& id) { return id.role == Role::Build; }
inline bool is_of_builds(const Understood& what) { return is_build(what.here.front().replica); }

}  // namespace dtrain::runner
