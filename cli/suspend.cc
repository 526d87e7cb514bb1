// dtrain suspend and resume: experiments that give back what they have, and go on later.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/id_ranges.h"
#include "cli/json_output.h"
#include "cli/list_filter.h"
#include "cli/newest.h"
#include "cli/remote.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace {

std::string line_of(const pb::SuspendReply::Item& item, bool resume) {
  const std::string& id = item.id();
  if (item.ending() && !is_over(item.state())) return fmt::format("{} is ending already; {} why {} tells more\n", id, called(), id);
  if (!item.changed() && is_over(item.state())) {
    return fmt::format("{} is already {}{}\n", id, item.state(), resume ? fmt::format("; {} rerun {} --resume goes on from what it wrote", called(), id) : "");
  }
  if (!item.changed()) return fmt::format("{} is {} suspended\n", id, resume ? "not" : "already");
  if (resume) return fmt::format("{} goes on once there is room; {} logs -f {} follows it\n", id, called(), id);
  return fmt::format("{} is {}; {} resume {} lets it go on\n", id, item.state() == to_string(State::Suspended) ? "suspended" : "being suspended", called(), id);
}

Result<int> suspend(const std::vector<std::string>& typed, bool resume, const CommandContext& context) {
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  TRY(const auto ids, without_ranges(typed, connection, may_be_changed));
  pb::SuspendRequest request;
  request.set_resume(resume);
  for (const std::string& id : ids) request.add_ids(id);
  if (ids.empty()) {
    pb::ListRequest of_all;
    of_all.set_members(true);
    TRY(pb::ListReply live, connection.list(of_all));
    keep_matching({key_user(), {}}, live);
    TRY(const std::string one, only_to_suspend(live, project_dir(), resume));
    request.add_ids(one);
  }
  TRY(const pb::SuspendReply reply, connection.suspend(request));
  // What is over neither goes on nor gives anything back, which a script is to know.
  const bool refused = std::ranges::any_of(reply.items(), [](const auto& item) { return !item.changed() && is_over(item.state()); });
  if (context.json) {
    fmt::print("{}", to_json(reply));
    return refused ? 2 : 0;
  }
  for (const auto& item : reply.items()) fmt::print("{}", line_of(item, resume));
  return refused ? 2 : 0;
}

Run declare(bool resume, const char* which, const char* footer, Options& options, CommandContext& context) {
  auto ids = std::make_shared<std::vector<std::string>>();
  options.ids(*ids, which);
  options.json(context);
  options.footer(footer);
  return [ids, resume, &context] { return suspend(*ids, resume, context); };
}

}  // namespace

Run declare_suspend(Options& options, CommandContext& context) {
  return declare(false, "experiments (4, 4-9), members (4.2); left out: the only one of this project that runs or waits",
                 "Its processes get TERM, and KILL after `stop-grace`, as for a restart; what it holds is then\n"
                 "free for others. What it wrote stays: it goes on from its checkpoint, if it keeps one.",
                 options, context);
}

Run declare_resume(Options& options, CommandContext& context) {
  return declare(true, "experiments (4, 4-9), members (4.2); left out: the only one of this project that is suspended",
                 "It takes its old place in the queue. `max-duration` counts anew.", options, context);
}

}  // namespace dtrain::cli
