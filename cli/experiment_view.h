// What `status ID` shows: field lines, then members or replicas, then what happened.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/best_member.h"
#include "cli/view.h"
#include "cli/why.h"
#include "schema/dtrain.pb.h"
#include "schema/ids.h"
#include "schema/result.h"

namespace dtrain::cli {

// One experiment, or a set with its members. `why` is why one failed, as far as its log tells.
std::string render_experiment(const pb::ShowReply& reply, const View& view, const Why& why = {},
                              const std::optional<BestMember>& best = {});

// The replicas that the pattern names. NotFound, with those there are, when it names none.
Result<std::vector<const pb::ReplicaInfo*>> replicas_named(const pb::ShowReply& reply,
                                                           const IdPattern& pattern);

// One of them in detail, several as a table.
Result<std::string> render_replicas(const pb::ShowReply& reply, const IdPattern& pattern,
                                    const View& view);

}  // namespace dtrain::cli
