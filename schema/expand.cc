#include "schema/expand.h"

#include "schema/combinations.h"
#include "schema/engine_read.h"
#include "schema/text_formats.h"
#include "schema/variation.h"

namespace dtrain {

namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

struct Placeholder {
  size_t begin = 0;  // of {{
  size_t end = 0;    // after }}
  std::string_view name;
};

// The next {{ name }} at or after `from`. Braces around anything that is no name are not ours.
std::optional<Placeholder> find_placeholder(std::string_view line, size_t from) {
  for (size_t open = line.find("{{", from); open != std::string_view::npos;
       open = line.find("{{", open + 1)) {
    size_t begin = open + 2;
    while (begin < line.size() && is_blank(line[begin])) ++begin;
    size_t end = begin;
    while (end < line.size() && line[end] != '}' && line[end] != '{' && !is_blank(line[end])) ++end;
    size_t close = end;
    while (close < line.size() && is_blank(line[close])) ++close;
    const std::string_view name = line.substr(begin, end - begin);
    if (line.substr(close).starts_with("}}") && kParameterName.accepts(name)) {
      return Placeholder{open, close + 2, name};
    }
  }
  return std::nullopt;
}

}  // namespace

std::string substitute(std::string_view line, const std::map<std::string, std::string>& values) {
  std::string out;
  size_t at = 0;
  while (const auto found = find_placeholder(line, at)) {
    out += line.substr(at, found->begin - at);
    const auto value = values.find(std::string(found->name));
    // Only a Spec that no parser accepted has a name without a value.
    out += value == values.end() ? line.substr(found->begin, found->end - found->begin)
                                 : std::string_view(value->second);
    at = found->end;
  }
  out += line.substr(at);
  return out;
}

std::vector<std::string> placeholders(std::string_view line) {
  std::vector<std::string> names;
  size_t at = 0;
  while (const auto found = find_placeholder(line, at)) {
    names.emplace_back(found->name);
    at = found->end;
  }
  return names;
}

std::string broken_placeholder(std::string_view line, std::string_view name) {
  for (size_t at = line.find(name); at != std::string_view::npos; at = line.find(name, at + 1)) {
    size_t begin = at;
    while (begin > 0 && is_blank(line[begin - 1])) --begin;
    size_t end = at + name.size();
    while (end < line.size() && is_blank(line[end])) ++end;
    const std::string_view before = line.substr(0, begin);
    const std::string_view after = line.substr(end);
    // "${name}}" is the shell's own.
    const bool one_opens = before.ends_with('{') && !before.ends_with("${");
    const bool two_open = before.ends_with("{{");
    const bool two_close = after.starts_with("}}");
    // "{{lr,wd},x}" is the shell's own too: a word of ours ends with a blank or a brace.
    const bool ends = after.empty() || end > at + name.size();
    const bool never_closes = ends && after.find("}}") == std::string_view::npos;
    if (two_open && !two_close && (after.starts_with('}') || never_closes)) {
      const size_t last = after.starts_with('}') ? end + 1 : at + name.size();
      return std::string(line.substr(begin - 2, last - begin + 2));
    }
    if (one_opens && !two_open && two_close) {
      return std::string(line.substr(begin - 1, end - begin + 3));
    }
  }
  return "";
}

std::map<std::string, std::string> member_parameters(const Spec& spec, uint32_t member) {
  const std::vector<size_t> places = combination(spec.parameters, spec.combine, member == 0 ? 0 : member - 1);
  std::map<std::string, std::string> values;
  for (size_t i = 0; i < places.size(); ++i) values[spec.parameters[i].name] = spec.parameters[i].values[places[i]];
  return values;
}

namespace {

bool has_shapes(const Spec& spec) {
  return spec.is_set() && (!spec.source.empty() || spec.role(Role::Tensorboard) != nullptr);
}

// The roles of a member, or of what all members share; its parameters are as they were.
Spec shape(const Spec& spec, size_t index) {
  Spec one = spec;
  std::erase_if(one.roles, [index](const RoleSpec& role) {
    return (role.role == Role::Tensorboard) != (index == 0);
  });
  if (index == 0) {
    one.restart = {};
    one.max_duration_ms = 0;
  }
  return one;
}

}  // namespace

std::vector<Spec> shapes_of(const Spec& spec) {
  if (!has_shapes(spec)) return {};
  std::vector<Spec> shapes = {shape(spec, 0)};
  if (spec.source.empty()) {
    shapes.push_back(shape(spec, 1));
    return shapes;
  }
  for (Spec& each : varied_specs(spec)) {
    each.parameters = spec.parameters;
    shapes.push_back(shape(each, 1));
  }
  return shapes;
}

size_t shape_of(const Spec& spec, uint32_t member) {
  return member == 0 ? 0 : 1 + variation_of(spec, member);
}

Spec member_spec(const Spec& spec, uint32_t member) {
  const std::map<std::string, std::string> values = member_parameters(spec, member);
  Spec one = spec.source.empty() ? spec : varied_spec(spec, variation_of(spec, member));
  if (has_shapes(spec)) one = shape(one, shape_of(spec, member));
  for (Parameter& parameter : one.parameters) parameter.values = {values.at(parameter.name)};
  for (RoleSpec& role : one.roles) {
    for (std::string& line : role.run) line = substitute(line, values);
  }
  one.engine.section = fill_engine(one.engine.section, values);
  return one;
}

std::string parameter_env_name(std::string_view name) {
  std::string out;
  for (const char c : name) {
    out += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return out;
}

}  // namespace dtrain
