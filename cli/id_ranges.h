// 4-9 and 4.1-4.6, where a command takes several IDs: the experiments, or members of one set, from one to the other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/connection.h"
#include "schema/ids.h"
#include "schema/result.h"

namespace dtrain::cli {

struct IdRange {
  ExperimentId first, last;   // both without a member, or both of one set
};

// Whether it is meant as one; read_range() says whether it is right.
bool is_range(const std::string& text);
// InvalidArgument: it is none.
Result<IdRange> read_range(const std::string& text);

// Which of those there are, in order.
using AskKnown = std::function<Result<std::vector<ExperimentId>>(const IdRange&)>;
// `typed` with IDs instead of ranges: what is not there is left out of a range, and what it holds comes once. NotFound: of
// one there is nothing.
Result<std::vector<std::string>> without_ranges(const std::vector<std::string>& typed, const AskKnown& known);
// By what the daemon knows; it is asked only where there are ranges. Of experiments, a range leaves out what does not count.
using Counts = std::function<bool(const pb::ExperimentInfo&)>;
Result<std::vector<std::string>> without_ranges(const std::vector<std::string>& typed, Connection& connection, const Counts& counts);
// Who has a key may change what is theirs.
bool may_be_changed(const pb::ExperimentInfo& info);

}  // namespace dtrain::cli
