#include "schema/kubeflow_container.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "schema/kubeflow_keys.h"
#include "schema/kubeflow_volumes.h"
#include "schema/shell_words.h"
#include "schema/spec_read.h"
#include "schema/text_formats.h"

namespace dtrain {

namespace {

// Letters that mean nothing to a shell, wherever they stand.
bool is_plain(char c) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
  return letter || std::string_view("_./:=,@%+-").find(c) != std::string_view::npos;
}

// Where a placeholder of a parameter ends that begins here; 0: none does.
size_t end_of_parameter(std::string_view text, const TextReading& reading) {
  const size_t end = text.starts_with("{{") ? text.find("}}") : std::string_view::npos;
  if (end == std::string_view::npos || !reading.is_parameter) return 0;
  std::string_view name = text.substr(2, end - 2);
  while (name.starts_with(' ')) name.remove_prefix(1);
  while (name.ends_with(' ')) name.remove_suffix(1);
  return reading.is_parameter(name) ? end + 2 : 0;
}

// A part of a word for a shell. Braces that are no placeholder are kept apart by quotes around nothing.
std::string shell_part(std::string_view text, const TextReading& reading) {
  if (std::ranges::all_of(text, is_plain)) return std::string(text);
  std::string out = "'";
  for (size_t at = 0; at < text.size(); ++at) {
    if (const size_t length = end_of_parameter(text.substr(at), reading); length > 0) {
      out += text.substr(at, length);
      at += length - 1;
    } else if (text[at] == '\'') {
      out += "'\\''";
    } else {
      out += text[at];
      if (text.substr(at).starts_with("{{")) out += "''";
    }
  }
  return out + "'";
}

// A text of Kubernetes: what refers to nothing, and how a shell writes it with what it refers to.
struct Expanded {
  bool refers = false;
  std::string text;  // where it does not
  std::string word;
};

Expanded expand(std::string_view text, const TextReading& reading) {
  Expanded out;
  std::string piece;
  const auto end_piece = [&] {
    if (!piece.empty()) out.word += shell_part(piece, reading);
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
      if (!name.empty() && reading.is_given(name)) {
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

bool knows(const std::vector<ContainerVariable>& variables, std::string_view name) {
  return std::ranges::find(variables, name, &ContainerVariable::name) != variables.end();
}

// What a map of amounts has of all the resources that are meant.
template <class IsMeant>
std::optional<double> amount(const YamlNode* amounts, const IsMeant& is_meant) {
  std::optional<double> sum;
  if (amounts == nullptr) return sum;
  for (const YamlEntry& entry : amounts->entries) {
    if (is_meant(entry.key)) sum = sum.value_or(0) + parse_quantity(entry.value.text).value_or(0);
  }
  return sum;
}

void put_scalar(YamlNode& map, std::string key, std::string text, bool plain) {
  YamlNode value;
  value.kind = YamlNode::Kind::Scalar;
  value.place = map.place;
  value.plain = plain;
  value.text = std::move(text);
  map.entries.push_back({std::move(key), map.place, std::move(value)});
}

}  // namespace

std::string word_of_field(std::string_view field, const PodNames& names) {
  constexpr std::string_view kLabels = "metadata.labels['training.kubeflow.org/";
  if (field == "metadata.name") return fmt::format("\"{}-{}-{}\"", names.job, names.role, names.index);
  if (field == "metadata.namespace" || field == "spec.serviceAccountName") return "default";
  if (field == "metadata.uid") return "\"${DTRAIN_SUBMISSION}\"";
  if (field == "spec.nodeName") return "\"$(uname -n)\"";
  for (const std::string_view address : {"status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"}) {
    if (field == address) return "\"${DTRAIN_ADDRESS}\"";
  }
  if (!field.starts_with(kLabels) || !field.ends_with("']")) return "";
  const std::string_view label = field.substr(kLabels.size(), field.size() - kLabels.size() - 2);
  if (label == "operator-name") return fmt::format("\"{}\"", names.controller);
  if (label == "job-role") return fmt::format("\"{}\"", names.job_role);
  if (label == "job-name") return fmt::format("\"{}\"", names.job);
  if (label == "replica-type") return fmt::format("\"{}\"", names.role);
  return label == "replica-index" ? fmt::format("\"{}\"", names.index) : "";
}

std::vector<ContainerVariable> container_variables(const YamlNode& container, const PodNames& names, const TextReading& reading,
                                                   std::vector<std::string>& left_out) {
  using Source = ContainerVariable::Source;
  std::vector<ContainerVariable> variables;
  const TextReading so_far{[&](std::string_view name) { return knows(variables, name) || reading.is_given(name); }, {}, {}};
  const YamlNode* const entries = container.find("env");
  if (entries == nullptr) return variables;
  for (const YamlNode& entry : entries->items) {
    ContainerVariable variable{entry.find("name")->text};
    variable.place = entry.place;
    const YamlNode* const from = entry.find("valueFrom");
    const YamlNode* const value = entry.find("value");
    if (const YamlNode* const field = value_of(value_of(from, "fieldRef"), "fieldPath")) {
      variable.source = Source::Shell;
      variable.text = word_of_field(field->text, names);
    } else if (from != nullptr) {
      variable.source = Source::Submitter;
      variable.is_optional = is_optional_source(*from);
    } else if (value != nullptr) {
      Expanded expanded = expand(value->text, so_far);
      variable.source = expanded.refers ? Source::Shell : Source::Text;
      variable.text = expanded.refers ? std::move(expanded.word) : std::move(expanded.text);
    }
    if (variable.is_optional && !reading.is_in_shell(variable.name)) {
      left_out.push_back(variable.name);
      continue;
    }
    // Of two with a name the last one counts.
    std::erase_if(variables, [&](const ContainerVariable& before) { return before.name == variable.name; });
    variables.push_back(std::move(variable));
  }
  return variables;
}

std::string container_line(const YamlNode& container, const std::vector<ContainerVariable>& variables, const std::string& run,
                           const TextReading& reading) {
  const YamlNode* const command = container.find("command");
  const bool has_command = command != nullptr && !command->items.empty();
  if (has_command && !run.empty()) return run;
  if (!has_command && run.empty()) return "";
  const TextReading all{[&](std::string_view name) { return knows(variables, name) || reading.is_given(name); },
                        reading.is_parameter, {}};
  std::string line = run;
  if (has_command && is_shells_own(command->items.front().text)) line = "exec";
  for (const YamlNode* words : {command, container.find("args")}) {
    if (words == nullptr) continue;
    for (const YamlNode& word : words->items) {
      if (!line.empty()) line += ' ';
      line += expand(word.text, all).word;
    }
  }
  return line;
}

std::string quoted_for_shell(std::string_view text) {
  return text.empty() ? "''" : shell_part(text, {});
}

std::string export_line(const ContainerVariable& variable) {
  const bool is_word = variable.source == ContainerVariable::Source::Shell;
  return fmt::format("export {}={}", variable.name, is_word ? variable.text : quoted_for_shell(variable.text));
}

YamlNode container_resources(const YamlNode& container) {
  YamlNode out;
  const YamlNode* const resources = container.find("resources");
  if (resources == nullptr) return out;
  out.place = resources->place;
  const auto wanted = [&](const auto& is_meant) {
    const auto requested = amount(value_of(resources, "requests"), is_meant);
    return requested ? requested : amount(value_of(resources, "limits"), is_meant);
  };
  constexpr double kLeastCpus = 0.01, kMostBytes = 1e18;   // for what asks for none, or next to none; or for more than there is
  const auto cpus = wanted([](std::string_view name) { return name == "cpu"; });
  const double memory = wanted([](std::string_view name) { return name == "memory"; }).value_or(0);
  const auto gpus = wanted(is_gpu_resource);
  if (!cpus && memory == 0 && !gpus) return out;
  out.kind = YamlNode::Kind::Map;
  if (cpus) put_scalar(out, "cpus", fmt::format("{}", std::max(*cpus, kLeastCpus)), true);
  if (memory > 0) put_scalar(out, "mem", format_memory(static_cast<uint64_t>(std::min(std::ceil(memory), kMostBytes))), false);
  if (gpus) put_scalar(out, "gpus", fmt::format("{}", *gpus), true);
  return out;
}

}  // namespace dtrain
