#include "cli/without_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace dtrain::cli {
namespace {

// How many roles ask for some; more than there are where it can't be parsed so.
size_t asking(const std::string& yaml, const ParseOptions& parsing, const Spec& spec) {
  const auto parsed = parse_spec(yaml, parsing);
  if (!parsed.ok()) return spec.roles.size() + 1;
  return static_cast<size_t>(std::ranges::count_if(parsed->roles, [](const RoleSpec& role) { return role.resources.gpus > 0; }));
}

}  // namespace

// Which roles have resources of their own is what the YAML says, and is tried.
std::string without_gpus(const std::string& yaml, const ParseOptions& parsing, const Spec& spec) {
  std::vector<std::string> keys = {"train.resources.gpus"};
  for (const RoleSpec& role : spec.roles) {
    if (role.resources.gpus > 0) keys.push_back(fmt::format("train.{}.distributed.{}.resources.gpus", to_string(spec.framework), to_string(role.role)));
  }
  ParseOptions with = parsing;
  std::string text;
  size_t left = asking(yaml, with, spec);
  // First what most of them have in common.
  while (left > 0) {
    std::string best;
    ParseOptions best_with;
    for (const std::string& key : keys) {
      ParseOptions more = with;
      more.set.emplace_back(key, "0");
      const size_t then = asking(yaml, more, spec);
      if (then >= left) continue;
      left = then;
      best = key;
      best_with = std::move(more);
    }
    if (best.empty()) break;
    with = std::move(best_with);
    text += fmt::format(" --set {}=0", best);
  }
  return left == 0 ? ", e.g." + text : "";
}

}  // namespace dtrain::cli
