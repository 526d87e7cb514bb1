// Whether packages can be fetched here: tests that need real ones are skipped without.
#pragma once

#include "tests/support/cluster.h"

namespace dtrain::tests {

bool index_answers(const Cluster& cluster);

}  // namespace dtrain::tests
