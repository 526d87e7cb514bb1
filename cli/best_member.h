// Which member of a set is the best so far, by the metric that its `search` names.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "cli/connection.h"
#include "schema/dtrain.pb.h"
#include "schema/spec.h"

namespace dtrain::cli {

struct BestMember {
  std::string id;      // "4.7"
  std::string state;
  std::string metric;
  double value = 0;    // the best it ever had; finite
  std::map<std::string, std::string> given;   // the parameters that tell it from the others
};

// The best value that a metric ever had, of those that are finite: over all attempts, where it is the search's. Nothing
// where there was none.
std::optional<double> best_value(const pb::Metric& metric, bool highest_is_best);

// By the search's metric, whatever became of the member; of equal ones the first. Nothing where the search names no
// metric, or nobody has a number for it. `reply` has all members, with their metrics.
std::optional<BestMember> best_member(const pb::ShowReply& reply, const Search& search);

// The same of a set by its ID, or by what is shown of it, perhaps not all members, with their metrics; nothing, too, where
// it can't be told now.
std::optional<BestMember> ask_for_best(Connection& connection, const std::string& id);
std::optional<BestMember> ask_for_best(Connection& connection, const pb::ShowReply& shown);

// "4.7: accuracy=0.9412 (learning-rate=0.01)"
std::string best_text(const BestMember& best);

}  // namespace dtrain::cli
