// `dtrain hosts test`: an experiment of one replica on each host, whose probes say what they find (schema/hosts_test.h).
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/hosts_verdict.h"
#include "schema/spec.h"

namespace dtrain::cli {

// Of the hosts that are known those that take part, and why others don't; with `names` (names or IDs) only these. NotFound
// for one that there is none of. Pure.
Result<HostsTest> hosts_to_test(const pb::HostsReply& known, const std::vector<std::string>& names);

// What is submitted: on each of them one replica, which asks for next to nothing. Pure.
Spec hosts_test_spec(const HostsTest& test);

Run declare_hosts_test(Options& options, CommandContext& context);

}  // namespace dtrain::cli
