#include <doctest/doctest.h>

#include <string>

#include "schema/spec.h"

namespace dtrain {
namespace {

std::string yaml_with(const std::string& train) { return "project: p\ntrain: {run: x, " + train + "}\n"; }

Spec policy_of(const std::string& train) {
  const auto spec = parse_spec(yaml_with(train), {});
  REQUIRE_MESSAGE(spec.ok(), (spec.ok() ? "" : spec.error().message));
  CHECK(*parse_spec(to_yaml(*spec), {}) == *spec);
  return *spec;
}

std::string policy_refusal(const std::string& train) {
  const auto spec = parse_spec(yaml_with(train), {});
  return spec.ok() ? "" : spec.error().message;
}

TEST_CASE("rules are read as they stand, in their order") {
  const Spec spec = policy_of(
      "failure-policy: [{printed: 'ECC (a|b)(c)', action: exclude-host}, {printed: 'nan', at-once: true, action: fail}, "
      "{exit-code: [143, 75, 75], action: restart}, {exit-code: 9, printed: x, action: restart}, {silent-for: 30m, action: restart}, {action: fail}]");
  REQUIRE(spec.failure_policy.size() == 6);
  CHECK(spec.failure_policy[0] == FailureRule{"ECC (a|b)(c)", false, {}, 0, FailureAction::ExcludeHost});
  CHECK(spec.failure_policy[1] == FailureRule{"nan", true, {}, 0, FailureAction::Fail});
  CHECK(spec.failure_policy[2] == FailureRule{"", false, {75, 143}, 0, FailureAction::Restart});
  CHECK(spec.failure_policy[3] == FailureRule{"x", false, {9}, 0, FailureAction::Restart});
  CHECK(spec.failure_policy[4] == FailureRule{"", false, {}, 1'800'000, FailureAction::Restart});
  CHECK(spec.failure_policy[5] == FailureRule{});
  CHECK(spec.silence_rule() == &spec.failure_policy[4]);
}

TEST_CASE("a rule that restarts has three where nothing is said of how many, and others stay as they were") {
  const Spec spec = policy_of("failure-policy: [{exit-code: 75, action: restart}]");
  CHECK(spec.restart.limit == 0);
  CHECK(spec.restarts_most() == 3);
  CHECK(spec.decider().on_failure == OnFailure::Fail);
  CHECK(policy_of("failure-policy: [{exit-code: 75, action: restart}], restart: {limit: 1}").restarts_most() == 1);
  CHECK(policy_of("failure-policy: [{exit-code: 75, action: restart}], restart: {backoff: 1s}").restarts_most() == 3);
  CHECK(policy_of("failure-policy: [{exit-code: 75, action: fail}]").restarts_most() == 0);
  CHECK(policy_refusal("failure-policy: [{exit-code: 75, action: restart}], restart: {limit: 0}") ==
        "dtrain.yml:2:58: train.failure-policy[1].action: restarting needs train.restart.limit to be 1 or more, not 0");
}

TEST_CASE("what means nothing is refused where it stands") {
  const auto reason = [](const std::string& rules) {
    const std::string text = policy_refusal("failure-policy: [" + rules + "]");
    const size_t at = text.find("train.failure-policy");
    return at == std::string::npos ? text : text.substr(at + 20);
  };
  CHECK(reason("{printed: 'a(', action: fail}") == "[1].printed: 'a(' is no regular expression: missing ): a(");
  CHECK(reason("{at-once: true, action: fail}") == "[1].at-once: it is about what is printed; name that beside it: printed: \"loss=nan\"");
  CHECK(reason("{exit-code: 0, action: fail}").starts_with("[1].exit-code: got 0, expected"));
  CHECK(reason("{exit-code: [1, 256], action: fail}").find("[1].exit-code[2]") == 0);
  CHECK(reason("{printed: x}").find("'action'") != std::string::npos);
  CHECK(reason("{printed: x, action: retry}").find("[1].action") == 0);
  CHECK(reason("{printed: x, silent-for: 1m, action: fail}").starts_with("[1].silent-for: who is silent"));
  CHECK(reason("{silent-for: 0, action: fail}") == "[1].silent-for: expected at least 1s");
  CHECK(reason("{silent-for: 1m, action: exclude-host}").starts_with("[1].silent-for: which of their hosts"));
  CHECK(reason("{silent-for: 1m, action: fail}, {silent-for: 2m, action: fail}") == "[2]: one rule before is about silence, too");
  CHECK(reason("{action: fail}, {printed: x, action: restart}") == "[2]: a rule before fits all failures, so that none is left for this one");
  CHECK(reason("{action: fail}, {silent-for: 1m, action: restart}").empty());
  CHECK(reason("{action: fail}, {silent-for: 1m, action: restart}, {printed: x, action: restart}").starts_with("[3]: a rule before"));
  CHECK(reason("{printed: x, at-once: true, exit-code: 3, action: fail}").starts_with("[1].exit-code: who is ended"));
}

}  // namespace
}  // namespace dtrain
