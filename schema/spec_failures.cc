// train.failure-policy: what failures mean, by what was printed, by their code, or since nothing is printed any more.
#include <algorithm>

#include "schema/line_pattern.h"
#include "schema/quote.h"
#include "schema/spec_check.h"
#include "schema/spec_read.h"
#include "schema/text_formats.h"

namespace dtrain {

namespace {

constexpr const char* kPolicyPath = "train.failure-policy";

const YamlNode* rules_of(const YamlNode& train) {
  const YamlNode* const rules = value_of(&train, "failure-policy");
  return rules != nullptr && rules->kind == YamlNode::Kind::List ? rules : nullptr;
}

bool is_for_all(const FailureRule& rule) { return rule.printed.empty() && rule.exit_codes.empty() && rule.silent_for_ms == 0; }

std::vector<int> read_codes(const YamlNode* node) {
  std::vector<int> codes;
  const auto take = [&](const YamlNode& item) {
    if (const auto code = as_integer(item); code && !item.refused) codes.push_back(static_cast<int>(*code));
  };
  if (node == nullptr) return codes;
  if (node->kind == YamlNode::Kind::Scalar) take(*node);
  for (const YamlNode& item : node->items) take(item);
  std::ranges::sort(codes);
  codes.erase(std::ranges::unique(codes).begin(), codes.end());
  return codes;
}

FailureAction action_of(std::string_view word) {
  if (word == "restart") return FailureAction::Restart;
  return word == "exclude-host" ? FailureAction::ExcludeHost : FailureAction::Fail;
}

void check_printed(const YamlNode& node, const std::string& path, SpecReading& reading) {
  if (const auto pattern = LinePattern::compile(node.text); !pattern.ok()) {
    reading.problems.add(node.place, join_path(path, "printed"), pattern.error().message);
  }
}

void check_silence(const YamlNode& node, const std::string& path, const FailureRule& rule, SpecReading& reading) {
  const YamlNode& silence = *value_of(&node, "silent-for");
  const auto complain = [&](std::string text) { reading.problems.add(silence.place, join_path(path, "silent-for"), std::move(text)); };
  if (!rule.printed.empty() || !rule.exit_codes.empty() || rule.at_once) {
    complain("who is silent has printed nothing and has no exit code yet; write a rule of its own for them");
  }
  if (rule.action == FailureAction::ExcludeHost) complain("which of their hosts it is nobody can tell; write 'action: restart'");
}

FailureRule read_rule(const YamlNode& node, const std::string& path, SpecReading& reading) {
  FailureRule rule;
  if (const YamlNode* const printed = value_of(&node, "printed")) {
    rule.printed = printed->text;
    check_printed(*printed, path, reading);
  }
  if (const YamlNode* const at_once = value_of(&node, "at-once")) {
    rule.at_once = as_boolean(*at_once).value_or(false);
    if (rule.at_once && node.find("printed") == nullptr) {
      reading.problems.add(at_once->place, join_path(path, "at-once"), "it is about what is printed; name that beside it: printed: \"loss=nan\"");
    }
  }
  rule.exit_codes = read_codes(value_of(&node, "exit-code"));
  if (rule.at_once && !rule.exit_codes.empty()) {
    reading.problems.add(value_of(&node, "exit-code")->place, join_path(path, "exit-code"), "who is ended at once has whatever code that makes; leave it out");
  }
  if (const YamlNode* const action = value_of(&node, "action")) rule.action = action_of(action->text);
  if (value_of(&node, "silent-for") == nullptr) return rule;
  rule.silent_for_ms = read_duration_ms(&node, path, "silent-for", 0, reading);
  constexpr int64_t kLeastMs = 1'000;   // nobody prints all the time
  if (const auto given = parse_duration_ms(value_of(&node, "silent-for")->text); rule.silent_for_ms < kLeastMs && given.value_or(0) < kLeastMs) {
    reading.problems.add(value_of(&node, "silent-for")->place, join_path(path, "silent-for"), "expected at least 1s");
  }
  check_silence(node, path, rule, reading);
  return rule;
}

// That none is in vain.
void check_order(const YamlNode& rules, const std::vector<FailureRule>& read, SpecReading& reading) {
  const auto in_vain = [&](size_t index, std::string why) {
    reading.problems.add(rules.items[index].place, join_path(kPolicyPath, index), std::move(why));
  };
  bool has_silence = false, has_all = false;
  for (size_t i = 0; i < read.size(); ++i) {
    if (read[i].silent_for_ms != 0) {
      if (std::exchange(has_silence, true)) in_vain(i, "one rule before is about silence, too");
    } else if (has_all) {
      return in_vain(i, "a rule before fits all failures, so that none is left for this one");
    }
    has_all = has_all || is_for_all(read[i]);
  }
}

}  // namespace

std::vector<FailureRule> read_failure_policy(const YamlNode& train, SpecReading& reading) {
  std::vector<FailureRule> policy;
  const YamlNode* const rules = rules_of(train);
  if (rules == nullptr) return policy;
  bool whole = true;
  for (size_t i = 0; i < rules->items.size(); ++i) {
    const YamlNode& item = rules->items[i];
    const bool is_read = !item.refused && std::ranges::none_of(item.entries, [](const YamlEntry& entry) { return entry.value.refused; });
    whole = whole && is_read;
    if (is_read) policy.push_back(read_rule(item, join_path(kPolicyPath, i), reading));
  }
  if (whole) check_order(*rules, policy, reading);
  return policy;
}

void check_rules_without_restarts(const YamlNode& train, const Spec& spec, SpecReading& reading) {
  const YamlNode* const rules = rules_of(train);
  for (size_t i = 0; rules != nullptr && i < spec.failure_policy.size() && i < rules->items.size(); ++i) {
    if (!restarts(spec.failure_policy[i].action)) continue;
    const YamlNode* const action = value_of(&rules->items[i], "action");
    return reading.problems.add(action != nullptr ? action->place : rules->items[i].place, join_path(join_path(kPolicyPath, i), "action"),
                                "restarting needs train.restart.limit to be 1 or more, not 0");
  }
}

int Spec::restarts_most() const {
  const bool some_rule = std::ranges::any_of(failure_policy, [](const FailureRule& rule) { return restarts(rule.action); });
  return restart.limit == 0 && some_rule ? RestartPolicy::kUsualLimit : restart.limit;
}

const FailureRule* Spec::silence_rule() const {
  const auto found = std::ranges::find_if(failure_policy, [](const FailureRule& rule) { return rule.silent_for_ms != 0; });
  return found == failure_policy.end() ? nullptr : &*found;
}

}  // namespace dtrain
