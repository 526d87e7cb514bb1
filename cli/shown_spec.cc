#include "cli/shown_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/spec_source.h"
#include "schema/ids.h"

namespace dtrain::cli {

namespace {

// A member's value as -p takes it. What begins like a list is one only where it was a list among lists.
std::string as_given(const Spec& set, const std::string& name, const std::string& value) {
  const bool like_list = value.starts_with('[') || value.starts_with('{');
  const auto declared = std::ranges::find(set.parameters, name, &Parameter::name);
  if (!like_list || declared == set.parameters.end() || !declared->path.empty()) return value;
  return nlohmann::json::array({value}).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Status check_whole(const std::string& id, std::string_view command) {
  if (id.empty()) return ok();
  TRY(const IdPattern pattern, parse_id_pattern(id));
  if (!pattern.names_replicas()) return ok();
  return Error{Code::InvalidArgument, fmt::format("{} is a part of an experiment", id),
               fmt::format("dtrain {} {}", command, to_string(pattern.experiment))};
}

Result<ParseOptions> parsing_of(const pb::ShowReply& shown, const std::vector<std::string>& parameters,
                                const std::vector<std::string>& settings) {
  ParseOptions parsing;
  parsing.file_name = fmt::format("experiment {}", shown.experiment().id());
  TRY(const ExperimentId id, parse_experiment_id(shown.experiment().id()));
  TRY(parsing.set, parse_assignments(settings, "--set"));
  // A list in the YAML is a parameter named after its key: what is set there now is meant.
  const auto is_set_now = [&](const std::string& name) {
    return std::any_of(parsing.set.begin(), parsing.set.end(),
                       [&](const auto& pair) { return pair.first.ends_with("." + name); });
  };
  if (id.member > 0) {
    TRY(const Spec set, parse_spec(shown.spec_yaml(), {}));
    for (const auto& [name, value] : shown.experiment().parameters()) {
      if (!is_set_now(name)) parsing.parameters.emplace_back(name, as_given(set, name, value));
    }
  }
  TRY(auto typed, parse_assignments(parameters, "-p"));
  for (auto& pair : typed) parsing.parameters.push_back(std::move(pair));
  return parsing;
}

bool begins_suspended(const Spec& spec, const ParseOptions& parsing) {
  const bool is_said = std::any_of(parsing.set.begin(), parsing.set.end(), [](const auto& pair) { return pair.first == "train.suspend"; });
  return spec.suspend && is_said;
}

}  // namespace dtrain::cli
