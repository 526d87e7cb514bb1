#include "cli/looked_at.h"

#include "cli/errors.h"
#include "cli/list_filter.h"
#include "cli/newest.h"
#include "cli/remote.h"

namespace dtrain::cli {

Result<pb::ShowReply> look_up(Connection& connection, const std::string& id) {
  pb::ShowRequest request;
  request.set_id(id);
  request.set_project_dir(project_dir());
  TRY(pb::ShowReply reply, connection.show(request));
  const std::string other = id.empty() ? of_another_project(reply.experiment(), request.project_dir()) : "";
  if (!other.empty()) tell({other});
  return reply;
}

Result<std::string> looked_at(Connection& connection, const std::string& typed) {
  if (!typed.empty()) return typed;
  TRY(pb::ListReply live, connection.list({}));
  keep_matching({key_user(), {}}, live);
  if (std::string running = newest_running(live, project_dir()); !running.empty()) return running;
  TRY(const pb::ShowReply newest, look_up(connection, ""));
  return newest.experiment().id();
}

}  // namespace dtrain::cli
