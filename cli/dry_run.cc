#include "cli/dry_run.h"

#include <unistd.h>

#include "cli/plan_view.h"
#include "cli/sink.h"
#include "cli/submit.h"

namespace dtrain::cli {

Result<pb::PlanReply> plan_of(Connection& connection, const Spec& spec) {
  pb::PlanRequest request;
  request.set_spec_yaml(to_yaml(spec));
  request.set_user(user_name());
  return connection.plan(request);
}

Result<int> show_plan(const pb::PlanReply& plan, const Spec& spec, const CommandContext& context) {
  Sink sink(STDOUT_FILENO);
  sink.write(context.json ? plan_json(plan) : render_plan(plan, spec, screen_of(STDOUT_FILENO)));
  TRY(sink.written());
  return 0;
}

}  // namespace dtrain::cli
