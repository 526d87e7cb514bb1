#include "cli/newest.h"

#include <fmt/format.h>

#include <algorithm>

#include "schema/states.h"

namespace dtrain::cli {

namespace {

// Of those elsewhere so many are named.
constexpr int kNamedMax = 5;

std::string ids_of(const pb::ListReply& live) {
  const int left_out = std::max(0, live.experiments_size() - kNamedMax);
  std::string ids;
  for (int i = left_out; i < live.experiments_size(); ++i) {
    ids += (ids.empty() ? "" : ", ") + live.experiments(i).id();
  }
  return left_out == 0 ? ids : fmt::format("{} and {} older", ids, left_out);
}

}  // namespace

Result<std::string> newest_to_kill(const pb::ListReply& live, const std::string& project_dir) {
  std::string newest;
  for (const pb::ExperimentInfo& each : live.experiments()) {
    if (each.project_dir() == project_dir) newest = each.id();  // the list is in order
  }
  if (!newest.empty()) return newest;
  if (live.experiments().empty()) {
    return Error{Code::NotFound, "there is nothing to kill: no experiment runs", "dtrain status -a shows what ended"};
  }
  return Error{Code::NotFound,
               fmt::format("no experiment of this project ({}) runs; of other projects: {}", project_dir, ids_of(live)),
               fmt::format("to end one of those, give its ID: dtrain kill {}", live.experiments().rbegin()->id())};
}

Result<std::string> newest_to_suspend(const pb::ListReply& live, const std::string& project_dir, bool resume) {
  std::string newest;
  for (const pb::ExperimentInfo& each : live.experiments()) {
    const bool is_suspended = each.state() == to_string(State::Suspended);
    if (each.project_dir() == project_dir && is_suspended == resume) newest = each.id();
  }
  if (!newest.empty()) return newest;
  return Error{Code::NotFound, fmt::format("no experiment of this project ({}) {}", project_dir, resume ? "is suspended" : "runs or waits"),
               "dtrain status shows all; name one by its ID"};
}

std::string newest_running(const pb::ListReply& live, const std::string& project_dir) {
  std::string newest;
  for (const pb::ExperimentInfo& each : live.experiments()) {
    const bool runs = each.state() == to_string(State::Running) || each.state() == to_string(State::Stopping);
    if (runs && each.project_dir() == project_dir) newest = each.id();
  }
  return newest;
}

}  // namespace dtrain::cli
