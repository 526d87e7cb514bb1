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
  std::string newest, suspended;
  for (const pb::ExperimentInfo& each : live.experiments()) {   // in order
    if (each.project_dir() != project_dir) continue;
    (each.state() == to_string(State::Suspended) ? suspended : newest) = each.id();
  }
  if (newest.empty()) newest = suspended;
  if (!newest.empty()) return newest;
  if (live.experiments().empty()) {
    return Error{Code::NotFound, "there is nothing to kill: no experiment runs", "dtrain status -a shows what ended"};
  }
  return Error{Code::NotFound,
               fmt::format("no experiment of this project ({}) runs; of other projects: {}", project_dir, ids_of(live)),
               fmt::format("to end one of those, give its ID: dtrain kill {}", live.experiments().rbegin()->id())};
}

Result<std::string> only_to_suspend(const pb::ListReply& live, const std::string& project_dir, bool resume) {
  pb::ListReply these, suspended, members;   // the last two: that are suspended
  for (const pb::ExperimentInfo& each : live.experiments()) {
    if (each.project_dir() != project_dir) continue;
    const bool ends = each.state() == to_string(State::Stopping);
    const bool is_suspended = each.state() == to_string(State::Suspended) || (ends && each.reason().starts_with("suspended"));
    const bool is_member = each.id().find('.') != std::string::npos;
    if (is_suspended) *(is_member ? members : suspended).add_experiments() = each;
    if (!is_member && (resume ? is_suspended : !is_suspended && !ends)) *these.add_experiments() = each;
  }
  if (these.experiments_size() == 1) return these.experiments(0).id();
  const char* verb = resume ? "resume" : "suspend";
  if (these.experiments_size() > 1) {
    return Error{Code::InvalidArgument, fmt::format("several experiments of this project {}: {}", resume ? "are suspended" : "run or wait", ids_of(these)),
                 fmt::format("say which: dtrain {} {}", verb, these.experiments().rbegin()->id())};
  }
  if (resume && members.experiments_size() > 0) {
    const std::string& newest = members.experiments().rbegin()->id();
    return Error{Code::InvalidArgument, fmt::format("no experiment of this project ({}) is suspended, but members are: {}", project_dir, ids_of(members)),
                 fmt::format("say which: dtrain resume {0}, or dtrain resume {1} for all of {1}", newest, newest.substr(0, newest.find('.')))};
  }
  if (!resume && suspended.experiments_size() > 0) {
    return Error{Code::NotFound, fmt::format("no experiment of this project ({}) runs or waits; suspended already: {}", project_dir, ids_of(suspended)),
                 fmt::format("dtrain resume {} lets it go on", suspended.experiments().rbegin()->id())};
  }
  return Error{Code::NotFound, fmt::format("no experiment of this project ({}) {}", project_dir, resume ? "is suspended" : "runs or waits"),
               fmt::format("dtrain status shows all; name one, or a member, by its ID: dtrain {} 4", verb)};
}

std::string newest_running(const pb::ListReply& live, const std::string& project_dir) {
  std::string newest;
  for (const pb::ExperimentInfo& each : live.experiments()) {
    const bool runs = each.state() == to_string(State::Running) || each.state() == to_string(State::Stopping);
    if (runs && each.project_dir() == project_dir) newest = each.id();
  }
  return newest;
}

std::string of_another_project(const pb::ExperimentInfo& taken, const std::string& project_dir) {
  if (taken.project_dir() == project_dir) return "";
  return fmt::format("nothing was submitted from {}: this is the newest that there is for you, {} of project {} in {}", project_dir, taken.id(),
                     taken.project(), taken.project_dir());
}

}  // namespace dtrain::cli
