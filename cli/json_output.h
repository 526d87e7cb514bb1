// The facts a command prints with --json: one object a command, one line, stable keys (README.md).
// A key is always there; what is not known is null, an empty list or "".
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/best_member.h"
#include "cli/comparison.h"
#include "cli/why.h"
#include "schema/dtrain.pb.h"
#include "schema/home.h"
#include "schema/spec.h"

namespace dtrain::cli {

// A file of an experiment's output, or a link there; `path` is relative to its directory.
struct OutputFile {
  std::string path;
  uint64_t size_bytes = 0;
  std::string link_to = {};  // empty: it is none
};

std::string to_json(const pb::ListReply& reply, bool older_left_out);
std::string to_json(const pb::ShowReply& reply, const Why& why, const std::optional<BestMember>& best);
nlohmann::ordered_json json_of(const std::optional<BestMember>& best);   // null: nobody is
std::string to_json(const pb::KillReply& reply);
std::string to_json(const pb::SuspendReply& reply);
std::string to_json(const pb::PruneReply& reply, bool done);
std::string to_json(const pb::HostsReply& reply);
std::string to_json(const pb::UsersReply& reply);
std::string to_json(const pb::DrainReply& reply, bool undrain);
// Of `daemon status`; null when none runs, and then `home` is all that is known.
std::string daemon_json(const Home& home, const pb::InfoReply* info, bool stopped_by_hand,
                        const pb::ListReply* live);
std::string shutdown_json(const pb::ShutdownReply& reply, bool was_running);
std::string output_json(const std::string& id, const std::string& directory,
                        const std::vector<OutputFile>& files);
// Of `check`; `spec` is null when there are mistakes.
std::string check_json(const std::string& file, const Spec* spec, const std::vector<Mistake>& mistakes,
                       const std::vector<std::string>& warnings, const std::vector<std::string>& notes);
std::string compare_json(const Comparison& comparison);
std::string why_json(const pb::ExperimentInfo& info, const Why& why);
std::string tensorboard_json(const std::string& id, const std::string& replica,
                             const std::string& address);

}  // namespace dtrain::cli
