// --dry-run of `train` and `rerun`: what the daemon would do with a Spec now. Nothing is submitted.
#pragma once

#include "cli/command.h"
#include "cli/connection.h"
#include "schema/spec.h"

namespace dtrain::cli {

Result<pb::PlanReply> plan_of(Connection& connection, const Spec& spec);
// Where each replica would land, to standard output; the exit code.
Result<int> show_plan(const pb::PlanReply& plan, const Spec& spec, const CommandContext& context);

}  // namespace dtrain::cli
