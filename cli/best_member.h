// Which member of a set is the best so far, by the metric that its `search` names.
#pragma once

#include <optional>
#include <string>

#include "cli/connection.h"
#include "schema/dtrain.pb.h"
#include "schema/spec.h"

namespace dtrain::cli {

struct BestMember {
  std::string id;      // "4.7"
  std::string metric;
  double value = 0;    // the best it ever had
  std::string given;   // what tells it from the others: "learning-rate=0.01, layers=4"
};

// By the metric's smallest or largest value in each member, whatever became of that; of equal ones the first. Nothing
// where the search names no metric, or nobody has a number for it. `reply` has all members, with their metrics.
std::optional<BestMember> best_member(const pb::ShowReply& reply, const Search& search);

// The same of a set by its ID; nothing, too, where it can't be told now.
std::optional<BestMember> ask_for_best(Connection& connection, const std::string& id);

// "4.7: accuracy=0.9412 (learning-rate=0.01)"
std::string best_text(const BestMember& best);

}  // namespace dtrain::cli
