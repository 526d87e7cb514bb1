// train.search: how the members of a set come about, which of them is the best, and what ends them.
#include <algorithm>

#include "schema/quote.h"
#include "schema/spec_check.h"
#include "schema/spec_read.h"
#include "schema/suggest.h"

namespace dtrain {

namespace {

constexpr const char* kSearchPath = "train.search";

const YamlNode* search_of(const YamlNode& train) {
  const YamlNode* const search = value_of(&train, "search");
  return search != nullptr && search->kind == YamlNode::Kind::Map ? search : nullptr;
}

int64_t integer_of(const YamlNode* map, std::string_view key, int64_t otherwise) {
  const YamlNode* const node = value_of(map, key);
  return node == nullptr ? otherwise : as_integer(*node).value_or(otherwise);
}

// One of `metrics`, which say where in the output it stands; empty when it is left out, or a problem.
std::string metric_of(const YamlNode* map, const std::string& path, std::string_view key, const Spec& spec, SpecReading& reading) {
  const YamlNode* const node = value_of(map, key);
  if (node == nullptr) return "";
  std::vector<std::string_view> names;
  for (const Metric& metric : spec.metrics) names.push_back(metric.name);
  if (std::ranges::find(names, node->text) != names.end()) return node->text;
  const std::string_view meant = nearest(node->text, names);
  reading.problems.add(node->place, join_path(path, key),
                       meant.empty() ? fmt::format("{0} is none of train.metrics; add it there: metrics: [{0}]", node->text)
                                     : fmt::format("{} is none of train.metrics; did you mean '{}'?", in_quotes(node->text), meant));
  return "";
}

std::optional<StopEarly> read_stop_early(const YamlNode* search, const Spec& spec, SpecReading& reading) {
  const YamlNode* const node = value_of(search, "stop-early");
  if (node == nullptr || node->kind != YamlNode::Kind::Map) return std::nullopt;
  const std::string path = join_path(kSearchPath, "stop-early");
  if (search->find("metric") == nullptr) {
    reading.problems.add(node->place, path, "it goes by a metric; name it beside this: metric: loss, goal: min");
  }
  StopEarly stop;
  stop.after = static_cast<int>(integer_of(node, "after", stop.after));
  stop.factor = static_cast<int>(integer_of(node, "factor", stop.factor));
  stop.by = metric_of(node, path, "by", spec, reading);
  if (const YamlNode* const metric = value_of(search, "metric"); metric != nullptr && !stop.by.empty() && metric->text == stop.by) {
    reading.problems.add(value_of(node, "by")->place, join_path(path, "by"), "it is the metric itself; left out, its values are counted");
  }
  return stop;
}

// What one parameter is drawn from, or is told to be wrong of; or what the command line fixes, to run one of the set.
bool may_be_drawn(const YamlNode& value) {
  const bool draws = value.kind == YamlNode::Kind::Map || value.items.size() > 1;
  return draws || value.refused || value.place.source != 0;
}

void check_samples(const YamlNode& train, SpecReading& reading) {
  const YamlNode* const search = search_of(train);
  const YamlNode* const samples = value_of(search, "samples");
  if (search->find("samples") == nullptr && value_of(search, "seed") != nullptr) {
    reading.problems.add(value_of(search, "seed")->place, join_path(kSearchPath, "seed"),
                         "nothing is drawn without 'samples'; a set that was drawn has its values for good");
  }
  if (samples == nullptr) return;
  if (value_of(&train, "combine") != nullptr) {
    reading.problems.add(samples->place, join_path(kSearchPath, "samples"),
                         "with 'combine' lists are members as they stand, as those of a set that was drawn are, and nothing is drawn from them");
  }
  if (reading.kinds > 1) {
    reading.problems.add(samples->place, join_path(kSearchPath, "samples"),
                         fmt::format("it draws from parameters, and {} is a list of something else; choose one value of it, or leave 'samples' out",
                                     reading.varied.front().path));
  }
  const YamlNode* const parameters = value_of(&train, "parameters");
  const bool some = parameters != nullptr && (parameters->refused || std::ranges::any_of(parameters->entries, [](const YamlEntry& entry) { return may_be_drawn(entry.value); }));
  if (!some && reading.varied.empty()) {
    reading.problems.add(samples->place, join_path(kSearchPath, "samples"),
                         "there is nothing to draw from; give a parameter several values, or a range of them: "
                         "parameters: {learning-rate: {log-uniform: {min: 1e-4, max: 0.1}}}");
  }
}

}  // namespace

uint64_t StopEarly::rung(uint32_t number) const {
  auto at = static_cast<uint64_t>(after);
  for (uint32_t i = 0; i < number; ++i) {
    if (__builtin_mul_overflow(at, static_cast<uint64_t>(factor), &at)) return UINT64_MAX;
  }
  return at;
}

Search read_search(const YamlNode& train, const Spec& spec, SpecReading& reading) {
  Search search;
  const YamlNode* const node = search_of(train);
  if (node == nullptr) return search;
  check_samples(train, reading);
  search.metric = metric_of(node, kSearchPath, "metric", spec, reading);
  const YamlNode* const goal = value_of(node, "goal");
  search.highest_is_best = goal != nullptr && goal->text == "max";
  if (goal == nullptr && node->find("goal") == nullptr && !search.metric.empty()) {
    reading.problems.add(value_of(node, "metric")->place, join_path(kSearchPath, "metric"),
                         "say beside it which value is the best: goal: min, or goal: max");
  }
  if (goal != nullptr && node->find("metric") == nullptr) {
    reading.problems.add(goal->place, join_path(kSearchPath, "goal"), "it is about a metric; name it beside this: metric: loss");
  }
  search.stop_early = read_stop_early(node, spec, reading);
  search.max_failed = static_cast<int>(integer_of(node, "max-failed", Search::kNoLimit));
  return search;
}

Combine combine_of(const YamlNode& train) {
  const YamlNode* const combine = value_of(&train, "combine");
  const bool together = members_to_draw(train) || (combine != nullptr && combine->text == "zip");
  return together ? Combine::Zip : Combine::Product;
}

std::optional<uint64_t> members_to_draw(const YamlNode& train) {
  const YamlNode* const search = search_of(train);
  if (search == nullptr || search->find("samples") == nullptr) return std::nullopt;
  return static_cast<uint64_t>(integer_of(search, "samples", 0));
}

uint64_t seed_of(const YamlNode& train) {
  return static_cast<uint64_t>(integer_of(search_of(train), "seed", 0));
}

void check_members(const YamlNode& root, const Spec& spec, Problems& problems) {
  if (spec.combine != Combine::Zip) return;
  const Parameter* first = nullptr;
  for (const Parameter& parameter : spec.parameters) {
    if (parameter.values.size() == 1) continue;
    if (first == nullptr) first = &parameter;
    if (parameter.values.size() == first->values.size()) continue;
    const YamlNode* const train = value_of(&root, "train");
    const YamlNode* const list = value_of(value_of(train, "parameters"), parameter.name);
    problems.add(list != nullptr ? list->place : train->place, list != nullptr ? "train.parameters." + parameter.name : parameter.path,
                 fmt::format("lists that go together are as long as each other, and '{}' has {} values, '{}' {}", first->name,
                             first->values.size(), parameter.name, parameter.values.size()));
    return;
  }
}

}  // namespace dtrain
