// Hosts that lack what an experiment names by path: a data set, a python. They are found out when
// they prepare, one after the other; from then on nothing of that experiment is placed there, until
// the host says Hello anew: it may have it by then. Pure.
#pragma once

#include <string>
#include <vector>

#include "daemon/model.h"

namespace dtrain::daemon {

bool is_unfit(const Experiment& experiment, const HostId& host);
std::vector<HostId> unfit_hosts(const Experiment& experiment);

// What they lack: "data mnist: /mnt/sets/mnist is not there on n1, n2, n3 and 4 more"; empty:
// nothing.
std::string lacks_text(const Model& model, const Experiment& experiment);

// Some hosts are unfit, and without them no gang of its size finds room, not even if all that is
// known, connected or not, were empty. Never while hosts may yet come back that nobody knows of.
bool has_no_host_left(const Model& model, const Experiment& experiment, TimeMs now);

// Of one that has no host left, with what to do.
std::string no_host_left_text(const Model& model, const Experiment& experiment);

}  // namespace dtrain::daemon
