#include "cli/failed_members.h"

#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "schema/expand.h"

namespace dtrain::cli {
namespace {

// The set that the YAML makes, of which these members are in these states; all others are FINISHED.
pb::ShowReply shown(const std::string& yaml, const std::vector<std::pair<uint32_t, std::string>>& states) {
  const auto spec = parse_spec(yaml, {});
  REQUIRE(spec.ok());
  pb::ShowReply reply;
  reply.mutable_experiment()->set_id("4");
  reply.mutable_experiment()->set_members(spec->is_set() ? static_cast<uint32_t>(spec->member_count()) : 0);
  reply.set_spec_yaml(to_yaml(*spec));
  for (uint32_t member = 1; spec->is_set() && member <= spec->member_count(); ++member) {
    pb::ExperimentInfo& info = *reply.add_members();
    info.set_id("4." + std::to_string(member));
    info.set_state("FINISHED");
    for (const auto& [failed, state] : states) {
      if (failed == member) info.set_state(state);
    }
    for (const auto& [name, value] : member_parameters(*spec, member)) (*info.mutable_parameters())[name] = value;
  }
  return reply;
}

Spec again(const pb::ShowReply& reply, size_t count, const ParseOptions& typed = {}) {
  const auto parsing = only_failed(reply, typed);
  REQUIRE(parsing.ok());
  const auto spec = parse_spec(reply.spec_yaml(), *parsing);
  REQUIRE_MESSAGE(spec.ok(), (spec.ok() ? "" : spec.error().message));
  CHECK(spec->member_count() == count);
  return *spec;
}

TEST_CASE("only what failed or was killed, with the values that it had") {
  const std::string yaml = "project: p\ntrain: {run: x, parameters: {a: [1, 2, 3], b: ['a: b', 'no', \"007\"], epochs: 10}}\n";
  const pb::ShowReply reply = shown(yaml, {{2, "FAILED"}, {4, "RUNNING"}, {9, "KILLED"}});
  const Spec spec = again(reply, 2);
  REQUIRE(spec.member_count() == 2);
  for (const auto& [now, before] : {std::pair(1u, 2), std::pair(2u, 9)}) {
    const auto& had = reply.members(before - 1).parameters();
    CHECK(member_parameters(spec, now) == std::map<std::string, std::string>(had.begin(), had.end()));
  }
  ParseOptions typed;
  typed.parameters = {{"epochs", "20"}};
  typed.set = {{"train.parameters.a", "5"}};
  CHECK(member_parameters(again(reply, 2, typed), 2).at("epochs") == "20");
  CHECK(member_parameters(again(reply, 2, typed), 2).at("a") == "5");
  CHECK(member_parameters(again(reply, 2, typed), 2).at("b") == "007");
  typed.set = {{"train.combine", "product"}};
  const auto others = only_failed(reply, typed);
  REQUIRE_FALSE(others.ok());
  CHECK(others.error().message == "--failed runs members as they were, and train.combine makes others of them");
  CHECK(again(shown(yaml, {{5, "FAILED"}}), 1).combine == Combine::Product);
  CHECK(member_parameters(again(shown(yaml, {{5, "FAILED"}}), 1), 1).at("b") == "no");
}

TEST_CASE("lists where one value belongs, also where the values are lists or maps") {
  const pb::ShowReply reply = shown("project: p\ntrain: {framework: engine, engine: {model: [{mlp: {hidden: [8]}}, lenet], data: {train: d}, "
                                    "strategy: allreduce, distributed: {worker: [1, 2]}}}\n",
                                    {{1, "FAILED"}, {4, "KILLED"}});
  const Spec spec = again(reply, 2);
  REQUIRE(spec.member_count() == 2);
  CHECK(member_parameters(spec, 1).at("worker") == "1");
  CHECK(member_parameters(spec, 1).at("model") == "{mlp: {hidden: [8]}}");
  CHECK(member_parameters(spec, 2).at("worker") == "2");
  CHECK(member_parameters(spec, 2).at("model") == "lenet");
}

TEST_CASE("whatever the values look like") {
  const std::string yaml = "project: p\ntrain: {run: x, parameters: {a: ['64, 64', 'p]', '{a: 1}', '#', '\\', '\"q\"', 'ä: ö', '~', ''], b: [1, 2]}}\n";
  std::vector<std::pair<uint32_t, std::string>> all;
  for (uint32_t member = 1; member <= 18; ++member) all.emplace_back(member, member % 2 == 0 ? "FAILED" : "KILLED");
  const pb::ShowReply reply = shown(yaml, all);
  const Spec spec = again(reply, 18);
  for (uint32_t member = 1; member <= 18; ++member) {
    const auto& had = reply.members(static_cast<int>(member) - 1).parameters();
    CHECK(member_parameters(spec, member) == std::map<std::string, std::string>(had.begin(), had.end()));
  }
}

TEST_CASE("nothing to run again") {
  const auto none = only_failed(shown("project: p\ntrain: {run: x, parameters: {a: [1, 2]}}\n", {}), {});
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().message == "no member of 4 has failed or was killed");
  const auto single = only_failed(shown("project: p\ntrain: {run: x}\n", {}), {});
  REQUIRE_FALSE(single.ok());
  CHECK(single.error().message.starts_with("4 is no set"));
}

}  // namespace
}  // namespace dtrain::cli
