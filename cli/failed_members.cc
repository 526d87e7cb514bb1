#include "cli/failed_members.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

#include "schema/states.h"
#include "schema/variation.h"

namespace dtrain::cli {

namespace {

bool has_failed(const pb::ExperimentInfo& member) {
  return member.state() == to_string(State::Failed) || member.state() == to_string(State::Killed);
}

// As one of a list in one line. What stood in a list elsewhere may be a number, or a list or a map again.
std::string item_of(const Parameter& parameter, const std::string& value) {
  if (parameter.path.empty()) return yaml_quoted(value);
  const bool is_tree = value.starts_with('[') || value.starts_with('{');
  return is_tree || value.find_first_of(",[]{}") == std::string::npos ? value : yaml_quoted(value);
}

}  // namespace

Result<ParseOptions> only_failed(const pb::ShowReply& shown, ParseOptions parsing) {
  const pb::ExperimentInfo& whole = shown.experiment();
  if (whole.members() == 0) {
    return Error{Code::InvalidArgument, fmt::format("{} is no set: there are no members of which some failed", whole.id()),
                 fmt::format("dtrain rerun {}", whole.id())};
  }
  std::vector<const pb::ExperimentInfo*> failed;
  for (const pb::ExperimentInfo& member : shown.members()) {
    if (has_failed(member)) failed.push_back(&member);
  }
  if (failed.empty()) {
    return Error{Code::FailedPrecondition, fmt::format("no member of {} has failed or was killed", whole.id()),
                 fmt::format("dtrain rerun {} runs all of them again", whole.id())};
  }
  TRY(const Spec spec, parse_spec(shown.spec_yaml(), {}));
  const auto is_set = [&](const std::string& key) {
    return std::ranges::any_of(parsing.set, [&](const auto& pair) { return pair.first == key; });
  };
  if (is_set("train.combine")) {
    return Error{Code::InvalidArgument, "--failed runs members as they were, and train.combine makes others of them", "leave one of them out"};
  }
  std::vector<std::pair<std::string, std::string>> lists;
  for (const Parameter& parameter : spec.parameters) {
    const bool is_own = parameter.path.empty();
    if (parameter.values.size() == 1 || is_set(is_own ? "train.parameters." + parameter.name : parameter.path)) continue;
    if (!is_own && failed.size() > kMaxVariedValues) {
      return Error{Code::InvalidArgument,
                   fmt::format("{} members of {} failed, and where {} is a list at most {} run again at once", failed.size(), whole.id(),
                               parameter.path, kMaxVariedValues),
                   fmt::format("dtrain rerun {}.1 runs one of them", whole.id())};
    }
    std::string list;
    for (const pb::ExperimentInfo* member : failed) {
      const auto value = member->parameters().find(parameter.name);
      if (value == member->parameters().end()) continue;
      list += (list.empty() ? "[" : ", ") + item_of(parameter, value->second);
    }
    lists.emplace_back(parameter.name, list + "]");
  }
  // First, so that the command line may say otherwise.
  parsing.parameters.insert(parsing.parameters.begin(), std::make_move_iterator(lists.begin()), std::make_move_iterator(lists.end()));
  if (failed.size() > 1) parsing.set.emplace_back("train.combine", "zip");
  return parsing;
}

}  // namespace dtrain::cli
