#include "cli/settings.h"

#include <algorithm>
#include <utility>

#include "schema/problems.h"
#include "schema/variation.h"

namespace dtrain::cli {

namespace {

// What other columns tell, what is too long for one, and what is the set's and no member's.
constexpr std::string_view kLeftOut[] = {"parameters", "metrics", "run", "combine", "search", "concurrency", "suspend", "after", "after-end"};

// As YAML on one line: "{parameter-server: {mode: async}}".
std::string flow_text(const YamlNode& node) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  switch (node.kind) {
    case YamlNode::Kind::Null:
      return "null";
    case YamlNode::Kind::Scalar:
      return node.text;
    case YamlNode::Kind::List:
      for (const YamlNode& item : node.items) add(flow_text(item));
      return '[' + text + ']';
    case YamlNode::Kind::Map:
      for (const YamlEntry& entry : node.entries) add(entry.key + ": " + flow_text(entry.value));
      return '{' + text + '}';
  }
  return text;
}

struct Difference {
  std::vector<std::string> keys;
  std::vector<std::optional<std::string>> values;
};

// Of maps that are a choice, as {lenet: {}} is, what each has chosen, where that is not told by keys below: one of them
// has none there.
std::vector<std::optional<std::string>> choices_of(const std::vector<const YamlNode*>& nodes) {
  std::vector<std::optional<std::string>> choices;
  bool has_no_keys = false;
  for (const YamlNode* node : nodes) {
    if (node == nullptr) {
      choices.emplace_back();
      continue;
    }
    if (node->entries.size() != 1) return {};
    const YamlEntry& only = node->entries.front();
    if (only.value.kind != YamlNode::Kind::Map && only.value.kind != YamlNode::Kind::Null) return {};
    has_no_keys |= only.value.entries.empty();
    choices.emplace_back(only.key);
  }
  const bool differ = std::ranges::any_of(choices, [&](const auto& choice) { return choice != choices.front(); });
  return has_no_keys && differ ? choices : std::vector<std::optional<std::string>>();
}

// `nodes` are what each of them has below `keys`, null where it has nothing.
void find_differences(const std::vector<const YamlNode*>& nodes, std::vector<std::string>& keys,
                      std::vector<Difference>& found) {
  const bool maps = std::ranges::all_of(
      nodes, [](const YamlNode* node) { return node == nullptr || node->kind == YamlNode::Kind::Map; });
  if (!maps) {
    Difference difference{keys, {}};
    for (const YamlNode* node : nodes) {
      difference.values.push_back(node ? std::optional(flow_text(*node)) : std::nullopt);
    }
    const auto& values = difference.values;
    if (std::ranges::any_of(values, [&](const auto& value) { return value != values.front(); })) {
      found.push_back(std::move(difference));
    }
    return;
  }
  if (const auto choices = choices_of(nodes); !choices.empty()) found.push_back({keys, choices});
  std::vector<std::string_view> below;
  for (const YamlNode* node : nodes) {
    if (node == nullptr) continue;
    for (const YamlEntry& entry : node->entries) {
      if (std::ranges::find(below, entry.key) == below.end()) below.push_back(entry.key);
    }
  }
  for (const std::string_view key : below) {
    std::vector<const YamlNode*> values;
    for (const YamlNode* node : nodes) values.push_back(node ? node->find(key) : nullptr);
    keys.emplace_back(key);
    find_differences(values, keys, found);
    keys.pop_back();
  }
}

std::string path_of(const std::vector<std::string>& keys) {
  std::string path = "train";
  for (const std::string& key : keys) path = join_path(path, key);
  return path;
}

// Of worker.count the role says what it is.
std::string short_name(const std::vector<std::string>& keys, const std::set<std::string>& taken) {
  auto key = keys.rbegin();
  if (*key == "count" && keys.size() > 1) ++key;
  std::string name = *key;
  while (taken.contains(name) && ++key != keys.rend()) name = *key + "-" + name;
  return taken.contains(name) ? path_of(keys) : name;
}

}  // namespace

std::shared_ptr<const Settings> settings_of(const Spec& spec, uint32_t member) {
  auto made = std::make_shared<Settings>();
  const std::vector<Parameter> variations = variations_of(spec);
  for (const Parameter& each : variations) made->varied[each.path] = each.name;
  Problems none("", false);
  const auto root =
      parse_yaml(to_yaml(variations.empty() ? spec : varied_spec(spec, variation_of(spec, member))), 0, none);
  if (const YamlNode* train = root ? root->find("train") : nullptr) made->train = *train;
  std::erase_if(made->train.entries, [](const YamlEntry& entry) {
    return std::ranges::find(kLeftOut, entry.key) != std::end(kLeftOut);
  });
  return made;
}

std::vector<DifferingSetting> differing_settings(const std::vector<std::shared_ptr<const Settings>>& all,
                                                 std::set<std::string> taken) {
  const bool known = std::ranges::all_of(all, [](const auto& each) { return each != nullptr; });
  const bool several = std::ranges::any_of(all, [&](const auto& each) { return each != all.front(); });
  if (!known || !several) return {};
  std::vector<const YamlNode*> nodes;
  std::map<std::string, std::string> varied;
  for (const auto& each : all) {
    nodes.push_back(&each->train);
    varied.insert(each->varied.begin(), each->varied.end());
  }
  std::vector<std::string> keys;
  std::vector<Difference> found;
  find_differences(nodes, keys, found);
  std::vector<DifferingSetting> settings;
  for (Difference& each : found) {
    const auto parameter = varied.find(path_of(each.keys));
    std::string name = parameter == varied.end() ? short_name(each.keys, taken) : parameter->second;
    taken.insert(name);
    settings.push_back({std::move(name), std::move(each.values)});
  }
  return settings;
}

}  // namespace dtrain::cli
