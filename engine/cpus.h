#pragma once

namespace dtrain::engine {

// How many this process may use, which the runner has set: 1 or more.
int cpus();

}  // namespace dtrain::engine
