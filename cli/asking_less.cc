#include "cli/asking_less.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace dtrain::cli {
namespace {

struct Scarce {
  std::string_view key;     // in a hint `key`
  std::string_view little;  // what nearly every host has
  bool (*asks_more)(const Resources&);
};
constexpr std::array<Scarce, 3> kScarce{{
    {"gpus", "0", [](const Resources& of) { return of.gpus > 0; }},
    {"mem", "1GiB", [](const Resources& of) { return of.memory_bytes > uint64_t{1} << 30; }},
    {"cpus", "1", [](const Resources& of) { return of.cpus > 1; }},
}};

const Scarce* scarce_by(std::string_view hint) {
  const auto* found = std::ranges::find_if(kScarce, [&](const Scarce& each) { return hint.find(fmt::format("`{}`", each.key)) != hint.npos; });
  return found == kScarce.end() ? nullptr : found;
}

// How many roles ask for more; more than there are where it can't be parsed so.
size_t asking(const Scarce& scarce, const std::string& yaml, const ParseOptions& parsing, const Spec& spec) {
  const auto parsed = parse_spec(yaml, parsing);
  if (!parsed.ok()) return spec.roles.size() + 1;
  return static_cast<size_t>(std::ranges::count_if(parsed->roles, [&](const RoleSpec& role) { return scarce.asks_more(role.resources); }));
}

// Takes into `with` what has no role ask for more, and gives it as words; empty: no --set would do.
// Which roles have resources of their own is what the YAML says, and is tried.
std::string ask_less(const Scarce& scarce, const std::string& yaml, ParseOptions& with, const Spec& spec) {
  std::vector<std::string> keys = {fmt::format("train.resources.{}", scarce.key)};
  for (const RoleSpec& role : spec.roles) {
    if (!scarce.asks_more(role.resources)) continue;
    keys.push_back(fmt::format("train.{}.distributed.{}.resources.{}", to_string(spec.framework), to_string(role.role), scarce.key));
  }
  std::string words;
  size_t left = asking(scarce, yaml, with, spec);
  // First what most of them have in common.
  while (left > 0) {
    std::string best;
    ParseOptions best_with;
    for (const std::string& key : keys) {
      ParseOptions more = with;
      more.set.emplace_back(key, scarce.little);
      const size_t then = asking(scarce, yaml, more, spec);
      if (then >= left) continue;
      left = then;
      best = key;
      best_with = std::move(more);
    }
    if (best.empty()) return "";
    with = std::move(best_with);
    words += fmt::format(" --set {}={}", best, scarce.little);
  }
  return words;
}

// Instead of the example that it has, and before the last thing that it advises.
std::string with_example(const std::string& hint, const std::string& words) {
  const size_t last = std::min(hint.rfind(", or "), hint.size());
  return hint.substr(0, std::min(hint.find(", e.g. "), last)) + ", e.g." + words + hint.substr(last);
}

}  // namespace

std::string hint_with_less(const Error& refusal, const std::string& yaml, const ParseOptions& parsing, const Spec& spec,
                           const std::function<Status(const Spec&)>& refused) {
  ParseOptions with = parsing;
  std::string words, hint = refusal.hint;
  std::set<const Scarce*> lowered;
  while (const Scarce* scarce = scarce_by(hint)) {
    if (!lowered.insert(scarce).second) return refusal.hint;   // even so it is short
    const std::string more = ask_less(*scarce, yaml, with, spec);
    const auto less = parse_spec(yaml, with);
    if (more.empty() || !less.ok()) break;
    words += more;
    const Status now = refused(*less);
    if (now.ok()) break;
    hint = now.error().hint;
  }
  return words.empty() ? refusal.hint : with_example(refusal.hint, words);
}

}  // namespace dtrain::cli
