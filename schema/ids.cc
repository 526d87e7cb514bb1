#include "schema/ids.h"

#include <array>
#include <vector>

#include "schema/quote.h"

namespace dtrain {

namespace {

struct RoleRow {
  Role role;
  std::string_view word;
  bool numbered;
};

constexpr std::array<RoleRow, 9> kRoles{{
    {Role::Train, "train", false},
    {Role::Master, "master", false},
    {Role::Chief, "chief", false},
    {Role::Launcher, "launcher", false},
    {Role::Worker, "worker", true},
    {Role::Ps, "ps", true},
    {Role::Evaluator, "evaluator", true},
    {Role::Build, "build", true},
    {Role::Tensorboard, "tensorboard", false},
}};

const RoleRow& row(Role role) {
  for (const RoleRow& candidate : kRoles) {
    if (candidate.role == role) return candidate;
  }
  INVARIANT(false, "every Role has a row");
  return kRoles[0];
}

constexpr std::string_view kForms = "an ID looks like 4, 4.2, 4.worker, 4.worker.1 or 4.2.ps.1";

Error refuse(std::string_view text, std::string_view why, std::string_view hint = kForms) {
  return {Code::InvalidArgument, fmt::format("{} is not an ID: {}", in_quotes(text), why),
          std::string(hint)};
}

// A number as IDs carry it: 1 to 4294967295, no sign, no leading zero.
std::optional<uint32_t> parse_number(std::string_view text) {
  if (text.empty() || text.size() > 10 || text[0] == '0') return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  if (value > UINT32_MAX) return std::nullopt;
  return static_cast<uint32_t>(value);
}

// At most one part more than any ID has, so that hostile input costs nothing.
std::vector<std::string_view> split_parts(std::string_view text) {
  std::vector<std::string_view> parts;
  while (parts.size() < 5) {
    const size_t dot = text.find('.');
    parts.push_back(text.substr(0, dot));
    if (dot == std::string_view::npos) break;
    text.remove_prefix(dot + 1);
  }
  return parts;
}

bool starts_with_digit(std::string_view part) {
  return !part.empty() && part[0] >= '0' && part[0] <= '9';
}

std::string_view why_no_experiment(std::string_view part) {
  if (part.find_first_not_of("0123456789,-") == std::string_view::npos && starts_with_digit(part) && part.find_first_of(",-") != std::string_view::npos) {
    return "it names several; where a command takes several they stand apart (1 2), or as a range (1-3)";
  }
  if (part.empty() || part.find_first_not_of("0123456789") != std::string_view::npos) {
    return "it starts with the number of an experiment, from 1 on";
  }
  if (part[0] == '0') return "the number of an experiment is 1 or more, without leading zeros";
  return "no experiment has a number that large";
}

}  // namespace

std::string_view to_string(Role role) {
  return row(role).word;
}

bool is_numbered(Role role) {
  return row(role).numbered;
}

std::optional<Role> parse_role(std::string_view word) {
  for (const RoleRow& candidate : kRoles) {
    if (candidate.word == word) return candidate.role;
  }
  return std::nullopt;
}

bool IdPattern::matches(const ExperimentId& id) const {
  return id.number == experiment.number &&
         (experiment.member == 0 || id.member == experiment.member);
}

bool IdPattern::matches(const ReplicaId& id) const {
  return matches(id.experiment) && (!role || *role == id.role) && (!index || *index == id.index);
}

std::string to_string(const ExperimentId& id) {
  return id.member == 0 ? fmt::format("{}", id.number) : fmt::format("{}.{}", id.number, id.member);
}

std::string to_string(const ReplicaId& id) {
  std::string text = fmt::format("{}.{}", to_string(id.experiment), to_string(id.role));
  // A build on one host carries no number: 4.build.
  if (id.index != 0) text += fmt::format(".{}", id.index);
  return text;
}

std::string to_string(const LaunchId& id) {
  return fmt::format("{}{}@{}", to_string(id.experiment), id.of_builds ? ".build" : "", id.attempt);
}

std::string to_string(const IdPattern& pattern) {
  std::string text = to_string(pattern.experiment);
  if (pattern.role) text += fmt::format(".{}", to_string(*pattern.role));
  if (pattern.index) text += fmt::format(".{}", *pattern.index);
  return text;
}

std::vector<std::string> to_strings(const std::vector<ExperimentId>& ids) {
  std::vector<std::string> texts;
  for (const ExperimentId& id : ids) texts.push_back(to_string(id));
  return texts;
}

Result<IdPattern> parse_id_pattern(std::string_view text) {
  if (text.empty()) return refuse(text, "it is empty");
  const std::vector<std::string_view> parts = split_parts(text);
  size_t next = 0;
  IdPattern pattern;

  const auto number = parse_number(parts[next++]);
  if (!number) return refuse(text, why_no_experiment(parts[0]));
  pattern.experiment.number = *number;

  if (next < parts.size() && starts_with_digit(parts[next])) {
    const auto member = parse_number(parts[next++]);
    if (!member) return refuse(text, "the number of a member is 1 or more, without leading zeros");
    pattern.experiment.member = *member;
  }
  if (next < parts.size()) {
    pattern.role = parse_role(parts[next]);
    if (!pattern.role) {
      return refuse(text, fmt::format("there is no role {}", in_quotes(parts[next])),
                    "roles: train, master, chief, launcher, worker, ps, evaluator, build, "
                    "tensorboard");
    }
    ++next;
  }
  if (next < parts.size()) {
    if (!is_numbered(*pattern.role)) {
      return refuse(
          text, fmt::format("{} carries no number: there is only one", to_string(*pattern.role)));
    }
    pattern.index = parse_number(parts[next++]);
    if (!pattern.index) {
      return refuse(text, "the number of a replica is 1 or more, without leading zeros");
    }
  }
  if (next < parts.size()) return refuse(text, "it has a part too many");
  return pattern;
}

Result<ExperimentId> parse_experiment_id(std::string_view text) {
  TRY(const IdPattern pattern, parse_id_pattern(text));
  if (pattern.names_replicas()) {
    return Error{Code::InvalidArgument,
                 fmt::format("{} names a replica, and an experiment is asked for", text),
                 fmt::format("the experiment is {}", to_string(pattern.experiment))};
  }
  return pattern.experiment;
}

Result<ReplicaId> parse_replica_id(std::string_view text) {
  TRY(const IdPattern pattern, parse_id_pattern(text));
  if (!pattern.role) {
    return refuse(text, "it names an experiment, and a replica is asked for",
                  fmt::format("a replica looks like {0}.master or {0}.worker.1",
                              to_string(pattern.experiment)));
  }
  if (is_numbered(*pattern.role) && !pattern.index && *pattern.role != Role::Build) {
    return refuse(text, fmt::format("a {} carries its number", to_string(*pattern.role)),
                  fmt::format("for example {}.1", to_string(pattern)));
  }
  return ReplicaId{pattern.experiment, *pattern.role, pattern.index.value_or(0)};
}

Result<LaunchId> parse_launch_id(std::string_view text) {
  const size_t at = std::min(text.find('@'), text.size());
  TRY(const IdPattern pattern, parse_id_pattern(text.substr(0, at)));
  const auto attempt = at < text.size() ? parse_number(text.substr(at + 1)) : std::nullopt;
  const bool of_builds = pattern.role == Role::Build;
  if (!attempt || pattern.index || (pattern.role && !of_builds)) return refuse(text, "it is not that of a launch", "launches look like 4.2@1 or 4.2.build@1");
  return LaunchId{pattern.experiment, *attempt, of_builds};
}

}  // namespace dtrain
