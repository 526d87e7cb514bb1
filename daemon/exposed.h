// Gathers what open_metrics.h tells of, as of now.
#pragma once

#include "daemon/metrics.h"
#include "daemon/monitor.h"
#include "daemon/open_metrics.h"
#include "daemon/scheduler.h"
#include "schema/home.h"

namespace dtrain::daemon {

// Of this process, and of the disk of its home; 0 where it can't be read.
OwnUsage own_usage(const Home& home);

// Good until the loop goes on.
Exposed expose(const OwnUsage& own, Scheduler& scheduler, Metrics& metrics, Monitor& monitor);

}  // namespace dtrain::daemon
