// What `train` and `rerun` do once the daemon has accepted: link the output, then watch to the end.
#pragma once

#include <filesystem>
#include <string>

#include "cli/best_member.h"
#include "cli/command.h"
#include "cli/connection.h"
#include "cli/log_printer.h"
#include "cli/printer.h"
#include "cli/watch_view.h"

namespace dtrain::cli {

struct FollowOptions {
  bool detach = false;
  std::unique_ptr<Signals> tied;  // null: it goes on without this command
  std::string time;               // "", "clock", "elapsed", "iso"
  std::filesystem::path project;  // where runs/N is made; empty: nowhere
};

// Who detaches has left, and what is tied would end with that.
Status check_leaving(bool detach, bool tied);

// The exit code of the command. With --json: {"id":...} when detached, else one object a line.
Result<int> follow(Connection& connection, const CommandContext& context,
                   const pb::Accepted& accepted, FollowOptions options);

// What has to change before it is started again goes into the outcome of what failed, or of a set the first member that did.
void add_hint(Connection& connection, pb::ExperimentInfo& outcome);

// How log lines look on this standard output: clock times on a terminal, full ones in a pipe,
// unless `time` says otherwise.
LogFormat log_format_of(const Screen& screen, const std::string& time);

// runs/<number> in the project becomes a link to `output_dir`, for people to find. A folder of that
// name is left alone. The link's path as a person in the current directory would type it.
Result<std::string> link_output(const std::filesystem::path& project, uint32_t number,
                                const std::filesystem::path& output_dir);
// That link's path, as it would be typed here, where it is there and leads to `output_dir`; else `output_dir`.
std::string typed_output(const std::filesystem::path& project, uint32_t number,
                         const std::string& output_dir);

// {"type":"end","id":"4","state":"FAILED","reason":"...","exit_code":3,"output_dir":"...","best":null}
std::string end_json(const pb::ExperimentInfo& outcome, const std::string& output_dir, const std::optional<BestMember>& best);

}  // namespace dtrain::cli
