// Why an experiment waits, for people.
#pragma once

#include <string>

#include "daemon/model.h"

namespace dtrain::daemon {

// As of now; empty when it has its place and all it asks for, or its end. Made on demand.
std::string wait_reason(const Model& model, const ExperimentId& id, TimeMs now);

}  // namespace dtrain::daemon
