#include "cli/looked_at.h"

#include "cli/list_filter.h"
#include "cli/newest.h"
#include "cli/remote.h"

namespace dtrain::cli {

Result<std::string> looked_at(Connection& connection, const std::string& typed) {
  if (!typed.empty()) return typed;
  TRY(pb::ListReply live, connection.list({}));
  keep_matching({key_user(), {}}, live);
  if (std::string running = newest_running(live, project_dir()); !running.empty()) return running;
  pb::ShowRequest newest;
  newest.set_project_dir(project_dir());
  TRY(const pb::ShowReply shown, connection.show(newest));
  return shown.experiment().id();
}

}  // namespace dtrain::cli
