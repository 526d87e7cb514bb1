// `dtrain daemon run`: the one scheduling daemon of a home, from its lock file to its last reply.
#pragma once

#include "schema/home.h"
#include "schema/result.h"

namespace dtrain::daemon {

struct DaemonOptions {
  Home home;
  bool local_runner = true;   // start and keep a runner on this machine
};

// Blocks until `daemon stop`, TERM or INT; replicas go on. When DTRAIN_READY_FD names a descriptor, one
// byte is written there and it is closed once calls are answered and the local runner is in.
// An error: it could not begin.
Status run_daemon(const DaemonOptions& options);

}  // namespace dtrain::daemon
