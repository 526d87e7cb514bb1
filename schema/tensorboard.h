// TensorBoard as a role: one process beside those that train, which shows what they write below
// OUTPUT_DIR. It belongs to no cluster, decides nothing and ends with the experiment. A set has one
// for all its members, 4.tensorboard.
#pragma once

#include "schema/spec.h"

namespace dtrain {

// Overrides, in the environment, the directory it shows.
inline constexpr const char* kTensorboardLogdir = "TENSORBOARD_LOGDIR";

// What `tensorflow: {tensorboard: true}` adds. It asks for little and listens on its own seat; once
// it does it prints one line, "TensorBoard: http://ADDRESS:PORT/".
RoleSpec tensorboard_role();
// Whether all it does is to show what another one wrote, as `dtrain tensorboard` begins it.
bool is_only_tensorboard(const Spec& spec);
// That, or what the members of a set share: nothing in it trains.
bool only_shows(const Spec& spec);

}  // namespace dtrain
