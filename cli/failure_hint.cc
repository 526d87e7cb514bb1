#include "cli/failure_hint.h"

#include <fmt/format.h>

#include "cli/ending.h"
#include "schema/ids.h"
#include "schema/spec.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace {

// The others that it names stay.
std::string rerun_after_text(const pb::ShowReply& reply, const std::string& reason) {
  std::string names = "ID";
  for (const std::string& other : reply.after()) {
    if (!reason.starts_with(fmt::format("{}{},", kCameAfter, other))) names += "," + other;
  }
  return fmt::format("dtrain rerun {} --after {}, where ID is a run of that one that is FINISHED, or will be", reply.experiment().id(), names);
}

bool says(const std::string& reason, std::string_view part) { return reason.find(part) != std::string::npos; }

}  // namespace

std::string mending_hint(const pb::ShowReply& reply) {
  const pb::ExperimentInfo& info = reply.experiment();
  const std::string& reason = info.reason();
  if (engine_refused(info)) {
    return fmt::format("as it was it is refused again; with what its log names changed: dtrain train, "
                       "or dtrain rerun {} --set KEY=VALUE",
                       info.id());
  }
  if (says(reason, "out of memory: killed at its limit")) {
    const bool alone = reason.starts_with(fmt::format("{}.{}:", info.id(), to_string(Role::Train)));
    const std::string how =
        alone ? fmt::format("dtrain rerun {} --set train.resources.mem=...", info.id())
              : "a larger one in dtrain.yml, of the role or of train.resources,";
    return fmt::format("`mem` is a hard limit here: {} gives it more", how);
  }
  // The shell's word for a command that it did not find. Whose image lacks it knows what is in that.
  if (reason.ends_with(": exit code 127")) {
    const auto spec = parse_spec(reply.spec_yaml(), {});
    if (spec.ok() && spec->image.empty()) {
      return "no such command was found: PATH is that of whoever started the daemon, or the host's runner, and "
             "env: {PATH: ...} in dtrain.yml sets another";
    }
  }
  if (reason.starts_with(kCameAfter)) return rerun_after_text(reply, reason);
  if (info.started_unix_ms() != 0 && reason.starts_with("its max-duration")) {
    const bool engine = info.framework() == to_string(Framework::Engine);
    return fmt::format("dtrain rerun {}{} --set train.max-duration=... gives it more", info.id(),
                       engine ? " --resume" : "");
  }
  return "";
}

std::string failure_hint(const pb::ShowReply& reply) {
  const pb::ExperimentInfo& info = reply.experiment();
  const std::string& reason = info.reason();
  if (std::string mending = mending_hint(reply); !mending.empty()) return mending;
  if (says(reason, "exit code") || says(reason, " printed '")) return "";
  if (lacks_container_program(info)) return fmt::format("install one of them there, or do without the image: {}", rerun_text(info));
  // No restart helps what lacked something, and none is made of what took too long.
  if (info.started_unix_ms() == 0) return fmt::format("once that is mended, {} starts it again", rerun_text(info));
  const bool spent = says(reason, "restarts are used") || says(reason, "one restart is used");
  const auto spec = parse_spec(reply.spec_yaml(), {});
  if (!spent && spec.ok() && !spec->failure_policy.empty()) {
    return fmt::format("{} starts it again; what does so by itself its failure-policy says", rerun_text(info));
  }
  std::string hint = fmt::format("{} starts it again; {}", rerun_text(info),
                                 spent ? "a higher restart.limit in dtrain.yml does so more often"
                                       : "restart: {limit: 3} in dtrain.yml does so by itself");
  if (says(reason, "its keeper died")) {
    hint = "a keeper is dtrain's own process above the program, and something killed it. " + hint;
  }
  return hint;
}

}  // namespace dtrain::cli
