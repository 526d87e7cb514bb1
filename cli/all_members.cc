#include "cli/all_members.h"

#include "schema/ids.h"

namespace dtrain::cli {

Status ask_for_all_members(Connection& connection, pb::ShowReply& reply) {
  if (reply.members_left_out() == 0) return ok();
  pb::ShowReply all;
  pb::ShowRequest request;
  request.set_id(reply.experiment().id());
  request.set_members_from(1);
  while (true) {
    TRY(const pb::ShowReply page, connection.show(request));
    if (page.members().empty()) break;
    TRY(const ExperimentId first, parse_experiment_id(page.members(0).id()));
    TRY(const ExperimentId last, parse_experiment_id(page.members().rbegin()->id()));
    // A daemon that knows no pages gives what it always gives.
    if (first.member < request.members_from()) return ok();
    all.mutable_members()->MergeFrom(page.members());
    if (page.members_left_out() == 0) break;
    request.set_members_from(last.member + 1);
  }
  reply.mutable_members()->Swap(all.mutable_members());
  reply.set_members_left_out(0);
  return ok();
}

}  // namespace dtrain::cli
