// distributed.elastic: with how few workers a gang begins, and when it takes more.
#include <algorithm>

#include "schema/spec_check.h"
#include "schema/spec_read.h"

namespace dtrain {

namespace {

const YamlNode* roles_of(const YamlNode& train, Framework framework) {
  return value_of(value_of(&train, roles_section(framework)), "distributed");
}

std::optional<int> count_of(const YamlNode* role) {
  if (role == nullptr) return std::nullopt;
  const YamlNode* const count = role->kind == YamlNode::Kind::Map ? value_of(role, "count") : role;
  if (count == nullptr) return std::nullopt;
  const auto number = as_integer(*count);
  return number ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

}  // namespace

int most_workers_of(const YamlNode* distributed) {
  const auto said = count_of(value_of(distributed, "worker"));
  if (said) return *said;
  const YamlNode* const elastic = value_of(distributed, "elastic");
  return count_of(value_of(elastic, "max")).value_or(1);
}

std::optional<Elastic> read_elastic(const YamlNode& train, Framework framework, SpecReading& reading) {
  const YamlNode* const distributed = roles_of(train, framework);
  const YamlNode* const node = value_of(distributed, "elastic");
  if (node == nullptr || node->kind != YamlNode::Kind::Map) return std::nullopt;
  const std::string path = fmt::format("train.{}.distributed.elastic", roles_section(framework));
  const YamlNode* const min = value_of(node, "min");
  const YamlNode* const max = value_of(node, "max");
  const bool has_chief = count_of(value_of(distributed, "chief")).value_or(0) > 0;
  const bool counts_master = !has_chief && framework != Framework::Mpi;
  const int most = most_workers_of(distributed);
  const int least = count_of(min).value_or(1);
  if (max != nullptr && count_of(max) != most) {
    reading.problems.add(max->place, join_path(path, "max"), fmt::format("got {}, and `worker` says {}; leave one of them out", max->text, most));
  }
  if (min != nullptr && least > most && node->find("max") == nullptr && value_of(distributed, "worker") == nullptr) {
    reading.problems.add(min->place, join_path(path, "min"), fmt::format("got {}, and nothing says how many at the most; write max beside it", least));
  } else if (min != nullptr && least > most && (max != nullptr || node->find("max") == nullptr)) {
    reading.problems.add(min->place, join_path(path, "min"), fmt::format("got {}, expected at most {}, as many as there are workers", least, most));
  }
  if (min != nullptr && least == 0 && !has_chief) {
    reading.problems.add(min->place, join_path(path, "min"), "got 0, expected at least 1");
  }
  Elastic elastic;
  const YamlNode* const grow = value_of(node, "grow-after");
  const bool never = grow != nullptr && grow->text == "never";
  elastic.grow_after_ms = never ? Elastic::kNever : read_duration_ms(node, path, "grow-after", elastic.grow_after_ms, reading);
  elastic.least_of_role = std::max(least - (counts_master ? 1 : 0), 0);
  if (least >= most) return std::nullopt;
  return elastic;
}

}  // namespace dtrain
