// `dtrain hosts-probe`: what each replica of `dtrain hosts test` runs. It looks at the disks of its host, dials all the
// others, and measures with one at a time what lies between them; and prints what it found (schema/hosts_test.h).
//
// The first host says who measures with whom, round by round, so that no host is in two measurements at once. Each wait
// has a deadline: whoever is not heard of is left out, and the others go on.
#pragma once

#include "schema/result.h"

namespace dtrain::runner {

// Reads TF_CONFIG and the other variables of a replica. An Error where it can't begin; what is wrong with hosts is printed.
Status run_hosts_probe();

}  // namespace dtrain::runner
