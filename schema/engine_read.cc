#include "schema/engine_read.h"

#include <algorithm>
#include <set>

#include "schema/combinations.h"
#include "schema/engine_keys.h"
#include "schema/engine_section.h"
#include "schema/expand.h"
#include "schema/spec_check.h"
#include "schema/variation.h"

namespace dtrain {

namespace {

constexpr std::string_view kDataRoot = "/data/";  // where replicas find data sets

bool holds_placeholder(const YamlNode& node) {
  return node.kind == YamlNode::Kind::Scalar && !placeholders(node.text).empty();
}

// What the roles are read from, before any parameter has a value.
bool decides_roles(const YamlEntry& entry) {
  return entry.key == "distributed" || entry.key == "tensorboard";
}

// Visits each value of the section that may be a parameter: where the table takes a text or a
// number, but for what decides about roles. Node is const or not.
template <typename Node, typename Visit>
void each_value(Node& node, const Shape& shape, const std::string& path, const Visit& visit) {
  if (node.kind == YamlNode::Kind::Scalar && takes_value(shape)) visit(node, path);
  const Shape* chosen = select_shape(shape, node);
  if (chosen == nullptr) return;
  for (size_t i = 0; i < node.items.size() && chosen->kind == Shape::Kind::List; ++i) {
    each_value(node.items[i], chosen->parts[0], join_path(path, i), visit);
  }
  for (auto& entry : node.entries) {
    if (path == kEnginePath && decides_roles(entry)) continue;
    for (const Key& key : chosen->keys) {
      if (key.name != entry.key) continue;
      each_value(entry.value, key.shape, join_path(path, entry.key), visit);
    }
  }
}

template <typename Node, typename Visit>
void each_value(Node& section, const Visit& visit) {
  each_value(section, engine_shape(), kEnginePath, visit);
}

EngineRoles roles_of(const Spec& spec) {
  EngineRoles roles{0, 0};
  for (const RoleSpec& role : spec.roles) {
    if (role.role == Role::Ps) roles.servers += role.count;
    if (role.role == Role::Ps || role.role == Role::Tensorboard) continue;
    const bool is_first = roles.workers == 0;
    roles.workers += role.count;
    roles.gpus = is_first ? role.resources.gpus : std::min(roles.gpus, role.resources.gpus);
    roles.most_gpus = std::max(roles.most_gpus, role.resources.gpus);
  }
  roles.workers = std::max(roles.workers, 1);
  if (spec.elastic) roles.least_workers = spec.least_workers();
  return roles;
}

void fill(YamlNode& section, const std::map<std::string, std::string>& values) {
  each_value(section, [&](YamlNode& node, const std::string&) {
    const std::vector<std::string> names = placeholders(node.text);
    if (names.empty()) return;
    node.refused = !std::all_of(names.begin(), names.end(),
                                [&](const std::string& name) { return values.contains(name); });
    if (node.refused) return;
    node.text = substitute(node.text, values);
    node.plain = true;  // what replaces it may be a number
  });
}

// Whether something in it was refused, or has no value, so that nothing more can be said.
bool is_broken(const YamlNode& node) {
  return node.refused || std::any_of(node.items.begin(), node.items.end(), is_broken) ||
         std::any_of(node.entries.begin(), node.entries.end(),
                     [](const YamlEntry& entry) { return is_broken(entry.value); });
}

// A value that is missing was reported: what follows from its default would be news of something else.
bool lacks_key(const YamlNode& node, const Shape& shape) {
  const Shape* chosen = select_shape(shape, node);
  if (chosen == nullptr || chosen->kind != Shape::Kind::Map) return false;
  return std::ranges::any_of(chosen->keys, [&](const Key& key) {
    const YamlNode* found = node.find(key.name);
    return found == nullptr ? key.required : lacks_key(*found, key.shape);
  });
}

void try_values(const YamlNode& section, const std::map<std::string, std::string>& values,
                const EngineRoles& roles, Problems& problems) {
  YamlNode one = section;
  fill(one, values);
  const size_t before = problems.size();
  check_again(one, engine_shape(), kEnginePath, problems);
  if (problems.size() != before || is_broken(one) || lacks_key(one, engine_shape())) return;
  read_engine_section(one, roles, problems);
}

// The parameters that the section asks for, with their values.
std::vector<Parameter> asked_for(const YamlNode& section, const Spec& spec,
                                 const SpecReading& reading) {
  std::set<std::string> names;
  each_value(section, [&](const YamlNode& node, const std::string&) {
    for (const std::string& name : placeholders(node.text)) names.insert(name);
  });
  std::vector<Parameter> found;
  for (const std::vector<Parameter>* from : {&spec.parameters, &reading.varied}) {
    for (const Parameter& parameter : *from) {
      if (names.contains(parameter.name)) found.push_back(parameter);
    }
  }
  return found;
}

void check_combinations(const YamlNode& section, const Spec& spec, SpecReading& reading) {
  const std::vector<Parameter> parameters = asked_for(section, spec, reading);
  const Combine combine = spec.combine;
  const uint64_t count = combination_count(parameters, combine);
  // Where lists of the parameters and others go together, this tree is one of the combinations.
  const bool together = combine == Combine::Zip && reading.kinds > 1;
  uint64_t all = count;
  if (!together && __builtin_mul_overflow(count, reading.kinds, &all)) all = UINT64_MAX;
  if (all > kMaxEngineCombinations) {
    reading.problems.add(
        section.place, kEnginePath,
        fmt::format("the parameters that stand here make {} combinations, expected "
                    "at most {}; take fewer values of each",
                    all, kMaxEngineCombinations));
    return;
  }
  const EngineRoles roles = roles_of(spec);
  const size_t before = reading.problems.size();
  const uint64_t first = together ? reading.kind : 0;
  const uint64_t end = together ? first + 1 : count;
  for (uint64_t kind = first; kind < end && reading.problems.size() == before; ++kind) {
    std::map<std::string, std::string> values;
    for (const Parameter& each : chosen_values(parameters, combine, kind)) {
      values[each.name] = each.values.front();
    }
    try_values(section, values, roles, reading.problems);
  }
}

void refuse_placeholder(const YamlNode& node, const std::string& path, std::string_view example,
                        Problems& problems) {
  problems.add(node.place, path,
               fmt::format("roles depend on this, so that it can't be a parameter; write a list: {}",
                           example));
}

// Below `distributed` and `tensorboard`, where the table takes no text: it would only say so.
void refuse_placeholders_of_counts(YamlNode& node, const std::string& path, std::string_view key,
                                   Problems& problems) {
  if (holds_placeholder(node)) {
    refuse_placeholder(node, path,
                       fmt::format("{}: {}", key, key == "tensorboard" ? "[true, false]" : "[1, 2]"),
                       problems);
    node.refused = true;
  }
  for (YamlEntry& entry : node.entries) {
    refuse_placeholders_of_counts(entry.value, join_path(path, entry.key), entry.key, problems);
  }
}

void refuse_placeholders_of_roles(const YamlNode& section, SpecReading& reading) {
  const auto refuse = [&](const YamlNode* node, const char* key, const char* example) {
    if (node == nullptr || !holds_placeholder(*node)) return;
    refuse_placeholder(*node, fmt::format("{}.{}", kEnginePath, key), example, reading.problems);
  };
  const YamlNode* strategy = section.find("strategy");
  if (strategy == nullptr) return;
  refuse(strategy, "strategy", "strategy: [single, mirrored]");
  const YamlNode* servers = strategy->find("parameter-server");
  if (servers == nullptr) return;
  refuse(servers->find("mode"), "strategy.parameter-server.mode", "mode: [async, sync]");
}

void check_beside(const YamlNode& train, const Spec& spec, SpecReading& reading) {
  const bool installs = !spec.install.empty() && !spec.tensorflow.tensorboard;
  for (const YamlEntry& entry : train.entries) {
    if (entry.key == "run") {
      reading.problems.add(entry.place, "train.run",
                           "the engine is its own command; remove 'run', or write 'framework: "
                           "command'");
    } else if (installs && (entry.key == "install" || entry.value.find("install") != nullptr)) {
      reading.problems.add(entry.place, join_path("train", entry.key),
                           "the engine needs no python; remove 'install', or write 'tensorboard: "
                           "true' below engine");
    }
  }
}

std::string section_text(const YamlNode& section) {
  YamlNode own = section;
  std::erase_if(own.entries, decides_roles);
  return emit_yaml(own);
}

}  // namespace

void check_spec_tree(YamlNode& root, Problems& problems) {
  YamlNode* train = root.find("train");
  YamlNode* section = train ? train->find("engine") : nullptr;
  std::vector<YamlNode*> aside;
  if (section != nullptr) {
    each_value(*section, [&](YamlNode& node, const std::string&) {
      if (!node.refused && holds_placeholder(node)) aside.push_back(&node);
    });
    for (YamlEntry& entry : section->entries) {
      if (!decides_roles(entry)) continue;
      refuse_placeholders_of_counts(entry.value, join_path(kEnginePath, entry.key), entry.key, problems);
    }
  }
  for (YamlNode* node : aside) node->refused = true;  // so that the check passes it over
  check_tree(root, spec_shape(), problems);
  for (YamlNode* node : aside) node->refused = false;
}

bool read_engine_tensorboard(const YamlNode& train) {
  const YamlNode* flag = value_of(value_of(&train, "engine"), "tensorboard");
  return flag && as_boolean(*flag).value_or(false);
}

bool read_in_step(const YamlNode& train) {
  const YamlNode* section = value_of(&train, "engine");
  const YamlNode* strategy = value_of(section, "strategy");
  if (strategy == nullptr) {
    const YamlNode* servers = value_of(value_of(section, "distributed"), "ps");
    const YamlNode* count =
        servers && servers->kind == YamlNode::Kind::Map ? value_of(servers, "count") : servers;
    return servers == nullptr || (count != nullptr && as_integer(*count) == 0);
  }
  if (strategy->kind == YamlNode::Kind::Scalar) return strategy->text != "parameter-server";
  const YamlNode* servers = strategy->find("parameter-server");
  if (servers == nullptr) return true;
  const YamlNode* mode = value_of(servers, "mode");
  return mode != nullptr && mode->text == "sync";
}

std::vector<std::pair<const YamlNode*, std::string>> engine_values(const YamlNode& train) {
  std::vector<std::pair<const YamlNode*, std::string>> found;
  const YamlNode* section = train.find("engine");
  if (section == nullptr) return found;
  each_value(*section, [&](const YamlNode& node, const std::string& path) {
    found.emplace_back(&node, path);
  });
  return found;
}

void read_engine(const YamlNode& train, Spec& spec, SpecReading& reading) {
  check_beside(train, spec, reading);
  const YamlNode* section = value_of(&train, "engine");
  if (section == nullptr || section->kind != YamlNode::Kind::Map) return;
  spec.engine.section = section_text(*section);
  if (reading.was_read) return;
  const size_t before = reading.problems.size();
  refuse_placeholders_of_roles(*section, reading);
  if (reading.problems.size() == before) check_combinations(*section, spec, reading);
}

std::string fill_engine(const std::string& section,
                        const std::map<std::string, std::string>& values) {
  if (section.find("{{") == std::string::npos) return section;
  Problems none("", false);
  auto root = parse_yaml(section, 0, none);
  INVARIANT(root && none.empty(), "a section was written by emit_yaml");
  fill(*root, values);
  return emit_yaml(*root);
}

std::string data_set_of(std::string_view path) {
  if (!path.starts_with(kDataRoot)) return "";
  path.remove_prefix(kDataRoot.size());
  return std::string(path.substr(0, path.find('/')));
}

Result<EngineSpec> engine_spec_of(const Spec& member) {
  Problems problems("engine", false);
  auto root = parse_yaml(member.engine.section, 0, problems);
  if (root && problems.empty()) {
    YamlNode section = *root;
    check_part(section, engine_shape(), kEnginePath, problems);
    if (problems.empty()) {
      EngineSpec spec = read_engine_section(section, roles_of(member), problems);
      if (problems.empty()) return spec;
    }
  }
  return problems.empty() ? Error{Code::InvalidArgument, "the experiment has no engine section", ""}
                          : problems.to_error("");
}

}  // namespace dtrain
