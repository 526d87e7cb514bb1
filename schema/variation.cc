#include "schema/variation.h"

#include <algorithm>
#include <map>

#include "schema/combinations.h"
#include "schema/decimal.h"
#include "schema/engine_read.h"
#include "schema/expand.h"
#include "schema/spec_check.h"
#include "schema/spec_read.h"

namespace dtrain {

namespace {

using Kind = Shape::Kind;

constexpr std::string_view kOfTheEngine = "train.engine.";

// What is the whole set's: no member has one of its own.
bool is_of_the_set(std::string_view path) {
  return path == "train.concurrency" || path == "train.combine" || path == "train.priority" || path == "train.preemptible" || path == "train.suspend" || path.starts_with("train.after") ||
         path.starts_with("train.search");
}

// A dimension's values are known: none of another dimension stands in them.
bool is_value(const YamlNode& item) {
  return item.kind == YamlNode::Kind::Scalar && placeholders(item.text).empty();
}

bool is_list_of_values(const YamlNode& item) {
  return item.kind == YamlNode::Kind::List && std::ranges::all_of(item.items, is_value);
}

// "{sgd: {momentum: 0.9}}"
bool is_map_of_values(const YamlNode& item) {
  return item.kind == YamlNode::Kind::Map && std::ranges::all_of(item.entries, [](const YamlEntry& entry) {
    return entry.value.kind == YamlNode::Kind::Null || is_value(entry.value) || is_list_of_values(entry.value) ||
           is_map_of_values(entry.value);
  });
}

// "[[64], [32, 32]]" where one list belongs.
bool varies_lists(const YamlNode& node, const Shape& list, const std::string& path) {
  return path.starts_with(kOfTheEngine) && list.kind == Kind::List &&
         std::ranges::all_of(node.items, is_list_of_values) &&
         std::ranges::none_of(node.items, [&](const YamlNode& item) { return select_shape(list.parts[0], item); });
}

bool varies(const YamlNode& node, const Shape& shape, const std::string& path) {
  if (node.kind != YamlNode::Kind::List || node.refused || node.items.empty()) return false;
  if (const Shape* chosen = select_shape(shape, node)) return varies_lists(node, *chosen, path);
  const bool takes_maps = path.starts_with(kOfTheEngine);
  const auto is_one = [&](const YamlNode& item) { return is_value(item) || (takes_maps && is_map_of_values(item)); };
  return std::ranges::all_of(node.items, is_one) &&
         std::ranges::any_of(node.items, [&](const YamlNode& item) { return select_shape(shape, item) != nullptr; });
}

// A list or map in one line: "[64, 32]", "{sgd: {momentum: 0.9}}".
std::string text_of(const YamlNode& value) {
  std::string text;
  switch (value.kind) {
    case YamlNode::Kind::Null:
      break;
    case YamlNode::Kind::Scalar:
      return value.text;
    case YamlNode::Kind::List:
      for (const YamlNode& item : value.items) text += (text.empty() ? "" : ", ") + text_of(item);
      return '[' + text + ']';
    case YamlNode::Kind::Map:
      for (const auto& [key, key_place, below] : value.entries) {
        text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", key, text_of(below));
      }
      return '{' + text + '}';
  }
  return text;
}

class Finder {
 public:
  explicit Finder(Problems& problems) : problems_(problems) {}

  void walk(const YamlNode& node, const Shape& shape, const std::string& path) {
    if (varies(node, shape, path)) {
      if (is_of_the_set(path)) return;
      Parameter found{"", {}, path};
      for (const YamlNode& item : node.items) found.values.push_back(text_of(item));
      found_.push_back(std::move(found));
      if (node.items.size() > kMaxVariedValues) {
        problems_.add(node.place, path,
                      fmt::format("got a list of {} values, expected at most {}", node.items.size(),
                                  kMaxVariedValues));
      }
      return;
    }
    const Shape* chosen = select_shape(shape, node);
    if (chosen == nullptr || chosen->kind != Kind::Map) return;
    for (const YamlEntry& entry : node.entries) {
      for (const Key& key : chosen->keys) {
        if (key.name == entry.key) walk(entry.value, key.shape, join_path(path, entry.key));
      }
    }
  }

  std::vector<Parameter> take() { return std::move(found_); }

 private:
  Problems& problems_;
  std::vector<Parameter> found_;
};

std::vector<std::string> keys_of(std::string_view path) {
  std::vector<std::string> keys;
  while (!path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    keys.emplace_back(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  if (keys.size() > 1 && keys.back() == "count") keys.pop_back();
  return keys;
}

// Of role.resources.gpus the role says more than "resources".
std::string longer_name(const std::vector<std::string>& keys) {
  size_t above = keys.size() - 1;
  if (above > 0) --above;
  if (above > 0 && keys[above] == "resources") --above;
  return keys[above] + "-" + keys.back();
}

YamlNode* at_path(YamlNode& root, std::string_view path) {
  YamlNode* node = &root;
  while (node != nullptr && !path.empty()) {
    const size_t dot = std::min(path.find('.'), path.size());
    node = node->find(path.substr(0, dot));
    path.remove_prefix(std::min(dot + 1, path.size()));
  }
  return node;
}

YamlNode text_node(std::string text) {
  YamlNode node;
  node.kind = YamlNode::Kind::Scalar;
  node.text = std::move(text);
  return node;
}

void put(YamlNode& map, std::string_view key, YamlNode value) {
  if (YamlNode* found = map.find(key)) {
    *found = std::move(value);
  } else {
    map.entries.push_back({std::string(key), {}, std::move(value)});
  }
}

void put_list(YamlNode& map, std::string_view key, const std::vector<std::string>& texts) {
  if (texts.empty()) return;
  YamlNode list;
  list.kind = YamlNode::Kind::List;
  for (const std::string& text : texts) list.items.push_back(text_node(text));
  put(map, key, std::move(list));
}

// A number in quotes stays a text.
std::string emit_scalar(const YamlNode& node) {
  YamlNode bare = node;
  bare.plain = true;
  if (as_number(bare) || as_boolean(bare)) return node.plain ? node.text : '"' + node.text + '"';
  std::string text;
  for (const std::string& line : read_lines(node)) text += line;
  return yaml_scalar(text);
}

void emit(const YamlNode& node, int depth, std::string& out) {
  switch (node.kind) {
    case YamlNode::Kind::Null:
      out += "\n";
      return;
    case YamlNode::Kind::Scalar:
      out += " " + emit_scalar(node) + "\n";
      return;
    case YamlNode::Kind::List:
      if (node.items.empty()) {
        out += " []\n";
        return;
      }
      out += "\n";
      for (const YamlNode& item : node.items) {
        out += fmt::format("{:{}}-", "", depth * 2);
        emit(item, depth + 1, out);
      }
      return;
    case YamlNode::Kind::Map:
      if (node.entries.empty()) {
        out += " {}\n";
        return;
      }
      if (depth > 0) out += "\n";
      for (const YamlEntry& entry : node.entries) {
        out += fmt::format("{:{}}{}:", "", depth * 2, yaml_scalar(entry.key));
        emit(entry.value, depth + 1, out);
      }
      return;
  }
}

YamlNode tree_of(const Spec& spec) {
  Problems none("", false);
  const auto root = parse_yaml(spec.source, 0, none);
  INVARIANT(root && none.empty(), "a source was written by emit_yaml");
  return *root;
}

Spec read_variation(const Spec& spec, const YamlNode& root,
                    const std::vector<Parameter>& variations, uint64_t kind) {
  Problems none("", false);
  const Combine combine = spec.combine;
  YamlNode tree = choose_variation(root, variations, combine, kind);
  check_spec_tree(tree, none);
  SpecReading reading{none};
  reading.varied = chosen_values(variations, combine, kind);
  reading.was_read = true;
  Spec one = read_spec(tree, {}, reading);
  INVARIANT(none.empty(), "each combination was read before");
  one.name = spec.name;
  one.note = spec.note;
  one.priority = spec.priority;
  one.preemptible = spec.preemptible;
  one.suspend = spec.suspend;
  one.after = spec.after;
  one.after_end = spec.after_end;
  one.env = spec.env;
  one.env_from_shell = spec.env_from_shell;
  return one;
}

}  // namespace

std::vector<Parameter> find_variations(const YamlNode& root, const Shape& shape,
                                       Problems& problems) {
  const YamlNode* train = root.find("train");
  if (train == nullptr) return {};
  const size_t before = problems.size();
  Finder finder(problems);
  for (const Key& key : shape.keys) {
    if (key.name == "train") finder.walk(*train, key.shape, "train");
  }
  std::vector<Parameter> found = finder.take();
  std::map<std::string, int> uses;
  const YamlNode* declared = train->find("parameters");
  for (const Parameter& each : found) ++uses[keys_of(each.path).back()];
  for (Parameter& each : found) {
    const std::vector<std::string> keys = keys_of(each.path);
    const bool taken = declared != nullptr && declared->find(keys.back()) != nullptr;
    each.name = uses[keys.back()] > 1 || taken ? longer_name(keys) : keys.back();
  }
  std::sort(found.begin(), found.end(),
            [](const Parameter& a, const Parameter& b) { return a.name < b.name; });
  for (size_t i = 0; i < found.size(); ++i) {
    const bool again = i > 0 && found[i].name == found[i - 1].name;
    const bool taken = declared != nullptr && declared->find(found[i].name) != nullptr;
    if (!again && !taken) continue;
    problems.add(train->place, found[i].path,
                 fmt::format("this list and another are both called '{}'; make one of them a "
                             "parameter",
                             found[i].name));
    return found;
  }
  const uint64_t count = combination_count(found, combine_of(*train));
  if (count > kMaxVariations && problems.size() == before) {
    problems.add(train->place, found.front().path,
                 fmt::format("the lists outside of 'parameters' make {} combinations, expected at "
                             "most {}",
                             count, kMaxVariations));
  }
  return found;
}

YamlNode choose_variation(const YamlNode& root, const std::vector<Parameter>& variations, Combine combine,
                          uint64_t kind) {
  YamlNode tree = root;
  const std::vector<size_t> places = combination(variations, combine, kind);
  for (size_t i = 0; i < variations.size(); ++i) {
    YamlNode* list = at_path(tree, variations[i].path);
    INVARIANT(list != nullptr && list->items.size() == variations[i].values.size(),
              "a variation is a list of this tree");
    YamlNode value = list->items[places[i]];
    *list = std::move(value);
  }
  return tree;
}

std::string emit_yaml(const YamlNode& root) {
  std::string out;
  emit(root, 0, out);
  return out;
}

void drop_own_keys(YamlNode& root) {
  std::erase_if(root.entries,
                [](const YamlEntry& entry) { return entry.key == "name" || entry.key == "note"; });
  YamlNode* train = root.find("train");
  if (train == nullptr) return;
  std::erase_if(train->entries, [](const YamlEntry& entry) {
    return entry.key == "priority" || entry.key == "preemptible" || entry.key == "suspend" || entry.key == "after" || entry.key == "after-end" || entry.key == "env";
  });
}

void put_own_keys(YamlNode& root, const Spec& spec) {
  if (!spec.name.empty()) put(root, "name", text_node(spec.name));
  if (!spec.note.empty()) put(root, "note", text_node(spec.note));
  YamlNode& train = *root.find("train");
  const auto put_plain = [&](const char* key, const std::string& value) {
    YamlNode node = text_node(value);
    node.plain = true;
    put(train, key, std::move(node));
  };
  if (spec.priority != Spec().priority) put_plain("priority", fmt::format("{}", spec.priority));
  if (spec.preemptible) put_plain("preemptible", "true");
  if (spec.suspend) put_plain("suspend", "true");
  put_list(train, "after", to_strings(spec.after));
  put_list(train, "after-end", to_strings(spec.after_end));
  put_list(train, "hosts", spec.hosts);
  std::vector<std::string> env;
  for (const auto& [name, value] : spec.env) env.push_back(name + "=" + value);
  env.insert(env.end(), spec.env_from_shell.begin(), spec.env_from_shell.end());
  put_list(train, "env", env);
}

std::vector<Parameter> variations_of(const Spec& spec) {
  std::vector<Parameter> variations;
  for (const Parameter& parameter : spec.parameters) {
    if (!parameter.path.empty()) variations.push_back(parameter);
  }
  return variations;
}

uint64_t variation_of(const Spec& spec, uint32_t member) {
  const Combine combine = spec.combine;
  const uint64_t number = member == 0 ? 0 : member - 1;
  if (combine == Combine::Zip) return std::min(number, combination_count(variations_of(spec), combine) - 1);
  const std::vector<size_t> places = combination(spec.parameters, combine, number);
  uint64_t kind = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    const Parameter& parameter = spec.parameters[i];
    if (!parameter.path.empty()) kind = kind * parameter.values.size() + places[i];
  }
  return kind;
}

Spec varied_spec(const Spec& spec, uint64_t kind) {
  return read_variation(spec, tree_of(spec), variations_of(spec), kind);
}

std::vector<Spec> varied_specs(const Spec& spec) {
  const YamlNode root = tree_of(spec);
  const std::vector<Parameter> variations = variations_of(spec);
  std::vector<Spec> specs;
  for (uint64_t kind = 0; kind < combination_count(variations, spec.combine); ++kind) {
    specs.push_back(read_variation(spec, root, variations, kind));
  }
  return specs;
}

}  // namespace dtrain
