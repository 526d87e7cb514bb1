#include "schema/kubeflow_container.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "schema/kubeflow_keys.h"
#include "schema/text_formats.h"

namespace dtrain {

namespace {

// Letters that mean nothing to a shell, wherever they stand.
bool is_plain(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return letter || std::string_view("_./:=,@%+-").find(c) != std::string_view::npos;
}

// A part of a word for a shell.
std::string quoted(std::string_view text) {
  if (std::ranges::all_of(text, is_plain)) return std::string(text);
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// A text of Kubernetes: what refers to nothing, and how a shell writes it with what it refers to.
struct Expanded {
  bool refers = false;
  std::string text;  // where it does not
  std::string word;
};

Expanded expand(std::string_view text, const IsGiven& is_given) {
  Expanded out;
  std::string piece;
  const auto end_piece = [&] {
    if (!piece.empty()) out.word += quoted(piece);
    out.text += piece;
    piece.clear();
  };
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '$' && text.substr(at + 1).starts_with('$')) {
      piece += '$';
      ++at;
      continue;
    }
    if (text.substr(at).starts_with("$(")) {
      const size_t end = text.find(')', at);
      const std::string_view name = end == std::string_view::npos ? "" : text.substr(at + 2, end - at - 2);
      if (!name.empty() && is_given(name)) {
        end_piece();
        out.word += fmt::format("\"${{{}}}\"", name);
        out.refers = true;
        at = end;
        continue;
      }
    }
    piece += text[at];
  }
  end_piece();
  if (out.word.empty()) out.word = "''";
  return out;
}

// Of the process itself, instead of the pod.
std::string_view word_of_field(std::string_view field) {
  if (field == "metadata.name") return "\"${DTRAIN_REPLICA}\"";
  if (field == "spec.nodeName") return "\"$(uname -n)\"";
  return "\"${DTRAIN_ADDRESS}\"";
}

const YamlNode* at(const YamlNode* map, std::string_view key) {
  return map == nullptr ? nullptr : map->find(key);
}

bool knows(const std::vector<ContainerVariable>& variables, std::string_view name) {
  return std::ranges::find(variables, name, &ContainerVariable::name) != variables.end();
}

// What a map of amounts has of one resource, or of each whose name contains that.
std::optional<double> amount(const YamlNode* amounts, std::string_view name, bool any_with) {
  std::optional<double> sum;
  if (amounts == nullptr) return sum;
  for (const YamlEntry& entry : amounts->entries) {
    const bool meant = any_with ? entry.key.find(name) != std::string::npos : entry.key == name;
    if (meant) sum = sum.value_or(0) + parse_quantity(entry.value.text).value_or(0);
  }
  return sum;
}

void put(YamlNode& map, std::string key, std::string text, bool plain) {
  YamlNode value;
  value.kind = YamlNode::Kind::Scalar;
  value.place = map.place;
  value.plain = plain;
  value.text = std::move(text);
  map.entries.push_back({std::move(key), map.place, std::move(value)});
}

}  // namespace

std::vector<ContainerVariable> container_variables(const YamlNode& container, const IsGiven& is_given) {
  using Source = ContainerVariable::Source;
  std::vector<ContainerVariable> variables;
  const auto known = [&](std::string_view name) { return knows(variables, name) || is_given(name); };
  const YamlNode* const entries = container.find("env");
  if (entries == nullptr) return variables;
  for (const YamlNode& entry : entries->items) {
    ContainerVariable variable{entry.find("name")->text};
    variable.place = entry.place;
    const YamlNode* const from = entry.find("valueFrom");
    const YamlNode* const value = entry.find("value");
    if (const YamlNode* const field = at(at(from, "fieldRef"), "fieldPath")) {
      variable.source = Source::Shell;
      variable.text = word_of_field(field->text);
    } else if (from != nullptr) {
      variable.source = Source::Submitter;
    } else if (value != nullptr) {
      Expanded expanded = expand(value->text, known);
      variable.source = expanded.refers ? Source::Shell : Source::Text;
      variable.text = expanded.refers ? std::move(expanded.word) : std::move(expanded.text);
    }
    // Of two with a name the last one counts.
    std::erase_if(variables, [&](const ContainerVariable& before) { return before.name == variable.name; });
    variables.push_back(std::move(variable));
  }
  return variables;
}

std::string container_line(const YamlNode& container, const std::vector<ContainerVariable>& variables, const IsGiven& is_given) {
  const YamlNode* const command = container.find("command");
  if (command == nullptr || command->items.empty()) return "";
  const auto known = [&](std::string_view name) { return knows(variables, name) || is_given(name); };
  std::string line;
  for (const YamlNode* words : {command, container.find("args")}) {
    if (words == nullptr) continue;
    for (const YamlNode& word : words->items) {
      if (!line.empty()) line += ' ';
      line += expand(word.text, known).word;
    }
  }
  return line;
}

std::string export_line(const ContainerVariable& variable) {
  const bool is_word = variable.source == ContainerVariable::Source::Shell;
  return fmt::format("export {}={}", variable.name, is_word ? variable.text : quoted(variable.text));
}

YamlNode container_resources(const YamlNode& container) {
  YamlNode out;
  const YamlNode* const resources = container.find("resources");
  if (resources == nullptr) return out;
  out.place = resources->place;
  const auto wanted = [&](std::string_view name, bool any_with) {
    const auto requested = amount(at(resources, "requests"), name, any_with);
    return requested ? requested : amount(at(resources, "limits"), name, any_with);
  };
  const auto cpus = wanted("cpu", false), memory = wanted("memory", false), gpus = wanted("gpu", true);
  if (!cpus && !memory && !gpus) return out;
  out.kind = YamlNode::Kind::Map;
  if (cpus) put(out, "cpus", fmt::format("{}", *cpus), true);
  if (memory) put(out, "mem", format_memory(static_cast<uint64_t>(std::min(std::ceil(*memory), 1e18))), false);
  if (gpus) put(out, "gpus", fmt::format("{}", *gpus), true);
  return out;
}

}  // namespace dtrain
