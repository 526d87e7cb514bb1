#include "cli/failed_members.h"

#include <fmt/format.h>

#include <iterator>
#include <vector>

#include "schema/states.h"

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
  std::vector<std::pair<std::string, std::string>> lists;
  for (const Parameter& parameter : spec.parameters) {
    if (parameter.values.size() == 1) continue;
    std::string list;
    for (const pb::ExperimentInfo* member : failed) {
      const auto value = member->parameters().find(parameter.name);
      if (value == member->parameters().end()) continue;
      list += (list.empty() ? "[" : ", ") + item_of(parameter, value->second);
    }
    lists.emplace_back(parameter.name, list + "]");
  }
  // First, so that the command line may say otherwise; but that they go together is what makes them those members.
  parsing.parameters.insert(parsing.parameters.begin(), std::make_move_iterator(lists.begin()), std::make_move_iterator(lists.end()));
  parsing.set.emplace_back("train.combine", "zip");
  return parsing;
}

}  // namespace dtrain::cli
