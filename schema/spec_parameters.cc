// Hyperparameters: the values of train.parameters and the {{ names }} that ask for them.
#include <algorithm>
#include <map>
#include <set>

#include "schema/decimal.h"
#include "schema/draw.h"
#include "schema/engine_read.h"
#include "schema/expand.h"
#include "schema/quote.h"
#include "schema/spec_read.h"
#include "schema/suggest.h"

namespace dtrain {

namespace {

struct GridSize {
  Combine combine = Combine::Product;
  uint64_t members = 1;
  // Takes in one more dimension; false when the set is larger than any may be.
  bool multiply(uint64_t count) {
    if (combine == Combine::Zip) {
      members = std::max(members, count);
    } else if (__builtin_mul_overflow(members, count, &members)) {
      members = UINT64_MAX;
    }
    return members <= kMaxMembers;
  }
};

// The numbers from `min` to `max` with `step` between them, of a map that has these, or at least the first two. Nothing
// when a problem was reported.
std::optional<DecimalRange> read_steps(const YamlNode& node, const std::string& path, SpecReading& reading) {
  const YamlNode* min = value_of(&node, "min");
  const YamlNode* max = value_of(&node, "max");
  const YamlNode* step = value_of(&node, "step");
  if (!min || !max || (!step && node.find("step"))) return std::nullopt;
  const auto first = parse_decimal(min->text);
  const auto last = parse_decimal(max->text);
  const auto stride = step ? parse_decimal(step->text) : Decimal{1, 0};
  const bool stands_still = stride && stride->mantissa <= 0;
  if (stands_still) {
    reading.problems.add(step->place, join_path(path, "step"),
                         fmt::format("got {}, expected more than 0", step->text));
  }
  const double low = std::strtod(min->text.c_str(), nullptr);
  const double high = std::strtod(max->text.c_str(), nullptr);
  if (low > high) {
    reading.problems.add(node.place, path,
                         fmt::format("min {} is more than max {}", min->text, max->text));
  }
  if (stands_still || low > high) return std::nullopt;
  const auto range =
      first && last && stride ? DecimalRange::make(*first, *last, *stride) : std::nullopt;
  if (!range) {
    reading.problems.add(node.place, path,
                         "these numbers need more than 18 digits; write the values as a list");
  }
  return range;
}

// Nothing when a problem was reported, or when the grid would outgrow its bound: then the values
// are never made.
std::vector<std::string> read_range(const YamlNode& node, const std::string& path, GridSize& grid,
                                    SpecReading& reading) {
  const auto range = read_steps(node, path, reading);
  if (!range) return {};
  if (range->count() > kMaxMembers) {
    reading.problems.add(node.place, path,
                         fmt::format("this range has {} values, and a set at most {} members",
                                     range->count(), kMaxMembers));
    return {};
  }
  std::vector<std::string> values;
  if (!grid.multiply(range->count())) return values;
  for (uint64_t i = 0; i < range->count(); ++i) values.push_back(range->at(i));
  return values;
}

// `node` is the map of `uniform` or `log-uniform`. Nothing when a problem was reported.
std::optional<Distribution> read_distribution(const YamlNode& node, const std::string& path, bool logarithmic, SpecReading& reading) {
  const YamlNode* min = value_of(&node, "min");
  const YamlNode* max = value_of(&node, "max");
  if (!min || !max) return std::nullopt;
  Distribution read;
  read.min = std::strtod(min->text.c_str(), nullptr);
  read.max = std::strtod(max->text.c_str(), nullptr);
  read.logarithmic = logarithmic;
  if (read.min > read.max) {
    reading.problems.add(node.place, path, fmt::format("min {} is more than max {}", min->text, max->text));
    return std::nullopt;
  }
  if (logarithmic && read.min <= 0) {
    reading.problems.add(min->place, join_path(path, "min"), fmt::format("got {}, expected more than 0", min->text));
    return std::nullopt;
  }
  if (!node.find("step")) return read;
  read.steps = read_steps(node, path, reading);
  if (!read.steps) return std::nullopt;
  const YamlNode& step = *value_of(&node, "step");
  read.step = std::strtod(step.text.c_str(), nullptr);
  if (read.steps->count() == 1 && read.max > read.min) {
    reading.problems.add(step.place, join_path(path, "step"), fmt::format("got {}, and from {} to {} it is less", step.text, min->text, max->text));
    return std::nullopt;
  }
  return read;
}

// What a parameter takes where it is a map: `range`, or what is drawn from. Nothing when a problem was reported.
std::optional<Drawable> read_map(const YamlNode& node, const std::string& path, bool draws, GridSize& grid, SpecReading& reading) {
  if (node.entries.size() != 1) {
    if (std::ranges::none_of(node.entries, [](const YamlEntry& entry) { return entry.value.refused; })) {
      reading.problems.add(node.place, path, "expected one of range, uniform and log-uniform");
    }
    return std::nullopt;
  }
  const auto& [key, place, below] = node.entries.front();
  if (below.refused) return std::nullopt;
  const std::string at = join_path(path, key);
  if (key == "range") {
    Drawable range{"", read_range(below, at, grid, reading)};
    return range.values.empty() ? std::nullopt : std::optional(std::move(range));
  }
  if (!draws) {
    reading.problems.add(place, at, "say how many members are drawn from it: search: {samples: 20}");
    return std::nullopt;
  }
  const auto distribution = read_distribution(below, at, key == "log-uniform", reading);
  return distribution ? std::optional(Drawable{"", {}, distribution}) : std::nullopt;
}

std::optional<Drawable> read_values(const YamlNode& node, const std::string& path, bool draws, GridSize& grid, SpecReading& reading) {
  if (node.kind == YamlNode::Kind::Scalar) return Drawable{"", {node.text}};
  if (node.kind == YamlNode::Kind::Map) return read_map(node, path, draws, grid, reading);
  std::vector<std::string> values;
  for (const YamlNode& item : node.items) {
    if (!item.refused) values.push_back(item.text);
  }
  if (values.empty()) return std::nullopt;
  grid.multiply(values.size());
  return Drawable{"", std::move(values)};
}

// Their values in each member; who has one value has it in all of them.
void draw_values(std::map<std::string, Drawable>& parameters, uint64_t members, uint64_t seed) {
  std::vector<Drawable> from;
  std::vector<Drawable*> drawn;
  for (auto& [name, values] : parameters) {
    if (!values.distribution && values.values.size() == 1) continue;
    values.name = name;
    from.push_back(values);
    drawn.push_back(&values);
  }
  if (from.empty()) return;
  auto lists = draw(from, members, seed);
  for (size_t i = 0; i < lists.size(); ++i) drawn[i]->values = std::move(lists[i]);
}

// Each text that is a command, or one line of it, with its path.
std::vector<std::pair<const YamlNode*, std::string>> command_nodes(const YamlNode& train,
                                                                  Framework framework) {
  std::vector<std::pair<const YamlNode*, std::string>> commands;
  const auto take = [&](const YamlNode* run, const std::string& path) {
    if (!run) return;
    if (run->kind != YamlNode::Kind::List) commands.emplace_back(run, path);
    for (size_t i = 0; i < run->items.size(); ++i) {
      commands.emplace_back(&run->items[i], join_path(path, i));
    }
  };
  take(value_of(&train, "run"), "train.run");
  if (framework == Framework::Engine) {
    for (auto& found : engine_values(train)) commands.push_back(std::move(found));
  }
  const char* section = roles_section(framework);
  const YamlNode* roles = value_of(value_of(&train, section), "distributed");
  if (!roles) return commands;
  for (const YamlEntry& role : roles->entries) {
    take(value_of(&role.value, "run"),
         fmt::format("train.{}.distributed.{}.run", section, role.key));
  }
  return commands;
}

void report_undeclared(const YamlNode& node, const std::string& path, const std::string& name,
                       const std::vector<std::string_view>& declared, SpecReading& reading) {
  std::string text = fmt::format("{{{{ {} }}}} has no value; ", name);
  const std::string_view meant = nearest(name, declared);
  if (!meant.empty()) text += fmt::format("did you mean {{{{ {} }}}}? If not, ", meant);
  text += fmt::format("give it with -p {0}=VALUE or declare it: parameters: {{{0}: VALUE}}", name);
  reading.problems.add(node.place, path, std::move(text));
}

}  // namespace

std::vector<Parameter> read_parameters(const YamlNode& train, SpecReading& reading) {
  const YamlNode* map = value_of(&train, "parameters");
  if (!map) return {};
  const std::optional<uint64_t> members = members_to_draw(train);
  GridSize grid;
  grid.combine = combine_of(train);
  std::map<std::string, Drawable> read;
  for (const YamlEntry& entry : map->entries) {
    if (entry.value.refused) continue;
    auto values = read_values(entry.value, join_path("train.parameters", entry.key), members.has_value(), grid, reading);
    if (grid.members > kMaxMembers) {
      const std::string count =
          grid.members == UINT64_MAX ? "more than 10^19" : fmt::format("{}", grid.members);
      reading.problems.add(map->place, "train.parameters",
                           fmt::format("up to '{}' this set has {} members, expected at most {}",
                                       entry.key, count, kMaxMembers));
      return {};
    }
    if (values) read[entry.key] = std::move(*values);
  }
  const bool all_read = read.size() == map->entries.size();   // else a problem was reported
  if (members.value_or(0) > 0 && all_read) draw_values(read, *members, seed_of(train));
  std::vector<Parameter> parameters;
  for (auto& [name, values] : read) {
    if (!values.values.empty()) parameters.push_back({name, std::move(values.values)});
  }
  return parameters;
}

void check_placeholders(const YamlNode& train, const Spec& spec,
                        const std::vector<AddedParameter>& added, SpecReading& reading) {
  std::vector<std::string_view> declared;
  const YamlNode* map = value_of(&train, "parameters");
  // A map that was refused may declare anything.
  if (!map && train.find("parameters")) return;
  if (map) {
    for (const YamlEntry& entry : map->entries) declared.push_back(entry.key);
  }
  for (const Parameter& each : reading.varied) declared.push_back(each.name);
  std::set<std::string> used;
  std::set<std::string> undeclared;
  for (const auto& [node, path] : command_nodes(train, spec.framework)) {
    for (const std::string& line : read_lines(*node)) {
      for (const std::string_view name : declared) {
        const std::string broken = broken_placeholder(line, name);
        if (broken.empty()) continue;
        reading.problems.add(
            node->place, path,
            fmt::format("{} lacks a brace; write {{{{ {} }}}}", in_quotes(broken), name));
      }
      for (const std::string& name : placeholders(line)) {
        used.insert(name);
        const bool known = std::find(declared.begin(), declared.end(), name) != declared.end();
        if (!known && undeclared.insert(name).second) {
          report_undeclared(*node, path, name, declared, reading);
        }
      }
    }
  }
  // Members share what is installed.
  if (const YamlNode* install = value_of(&train, "install")) {
    for (const std::string& line : read_lines(*install)) {
      for (const std::string& name : placeholders(line)) {
        if (std::find(declared.begin(), declared.end(), name) == declared.end()) continue;
        reading.problems.add(install->place, "train.install",
                             fmt::format("{{{{ {} }}}} has no value here: all members share what is installed", name));
      }
    }
  }
  reading.undeclared.assign(undeclared.begin(), undeclared.end());

  for (const AddedParameter& parameter : added) {
    if (used.contains(parameter.name)) continue;
    std::vector<std::string_view> others(used.begin(), used.end());
    for (const std::string_view name : declared) {
      const bool given = std::any_of(added.begin(), added.end(),
                                     [&](const AddedParameter& a) { return a.name == name; });
      if (!given) others.push_back(name);
    }
    std::string text = fmt::format("there is no parameter '{}'", parameter.name);
    const std::string_view meant = nearest(parameter.name, others);
    text += meant.empty() ? fmt::format(
                                "; use {{{{ {} }}}} in '{}' or declare it under "
                                "train.parameters",
                                parameter.name,
                                spec.framework == Framework::Engine ? "engine" : "run")
                          : fmt::format("; did you mean '{}'?", meant);
    reading.problems.add(parameter.place, "", std::move(text));
  }
}

}  // namespace dtrain
