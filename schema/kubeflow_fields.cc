#include "schema/kubeflow_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>

#include "schema/kubeflow_yaml.h"
#include "schema/spec_read.h"

namespace dtrain {

namespace {

using Answer = std::optional<std::string>;

const YamlNode* container_called(const YamlNode& containers, const std::string& name) {
  const auto called = std::ranges::find_if(containers.items, [&](const YamlNode& one) { return scalar_text(one.find("name")) == name; });
  return called == containers.items.end() ? nullptr : &*called;
}

// "metadata.labels['team']".
Answer field(std::string_view path, const YamlNode* metadata, const YamlNode& manifest) {
  if (path == "metadata.namespace") {
    const std::string said = scalar_text(value_of(manifest.find("metadata"), "namespace"));
    return said.empty() ? Answer() : Answer(said);
  }
  for (const std::string_view map : {"labels", "annotations"}) {
    const std::string begin = fmt::format("metadata.{}['", map);
    if (!path.starts_with(begin) || !path.ends_with("']")) continue;
    const std::string_view key = path.substr(begin.size(), path.size() - begin.size() - 2);
    const YamlNode* const value = value_of(value_of(metadata, map), key);
    if (value != nullptr && value->kind == YamlNode::Kind::Scalar) return value->text;
  }
  return std::nullopt;
}

// "limits.cpu", counted in divisors and rounded up. What is not requested is what is the limit.
Answer amount(const YamlNode& reference, const YamlNode& container) {
  const std::string what = scalar_text(reference.find("resource"));
  const size_t dot = what.find('.');
  const std::string of = what.substr(0, dot), name = dot == std::string::npos ? "" : what.substr(dot + 1);
  if ((of != "limits" && of != "requests") || (name != "cpu" && name != "memory")) return std::nullopt;
  const YamlNode* const resources = container.find("resources");
  const YamlNode* said = value_of(value_of(resources, of), name);
  if (said == nullptr && of == "requests") said = value_of(value_of(resources, "limits"), name);
  const YamlNode* const divisor = reference.find("divisor");
  const auto total = parse_quantity(scalar_text(said));
  auto unit = divisor == nullptr ? 1 : parse_quantity(scalar_text(divisor));
  if (!total || !unit) return std::nullopt;
  if (*unit == 0) unit = 1;
  const double scale = name == "cpu" ? 1000 : 1;   // CPUs are counted to a thousandth
  const double count = std::ceil(std::ceil(*total * scale - 1e-6) / std::max(1.0, std::ceil(*unit * scale - 1e-6)));
  constexpr double kMost = 1e18;
  return fmt::format("{}", static_cast<int64_t>(std::min(count, kMost)));
}

void put_value(YamlNode& entry, const std::string& text) {
  std::string literal;   // a text of Kubernetes that refers to nothing
  for (const char c : text) literal += c == '$' ? "$$" : std::string(1, c);
  std::erase_if(entry.entries, [](const YamlEntry& one) { return one.key == "valueFrom" || one.key == "value"; });
  YamlNode value = yaml_text(literal);
  value.place = entry.place;
  entry.entries.push_back({"value", entry.place, std::move(value)});
}

}  // namespace

void put_fields(YamlNode& manifest, ManifestKind kind) {
  YamlNode* const spec = manifest.find("spec");
  YamlNode* const roles = spec == nullptr ? nullptr : spec->find(replicas_key(kind));
  if (roles == nullptr) return;
  for (YamlEntry& role : roles->entries) {
    YamlNode* const pod_template = role.value.kind == YamlNode::Kind::Map ? role.value.find("template") : nullptr;
    YamlNode* const pod = pod_template == nullptr ? nullptr : pod_template->find("spec");
    YamlNode* const containers = pod == nullptr ? nullptr : pod->find("containers");
    if (containers == nullptr) continue;
    for (YamlNode& container : containers->items) {
      YamlNode* const env = container.kind == YamlNode::Kind::Map ? container.find("env") : nullptr;
      if (env == nullptr) continue;
      for (YamlNode& entry : env->items) {
        const YamlNode* const from = entry.kind == YamlNode::Kind::Map ? entry.find("valueFrom") : nullptr;
        Answer answer;
        if (const YamlNode* const path = value_of(value_of(from, "fieldRef"), "fieldPath")) {
          answer = field(scalar_text(path), pod_template->find("metadata"), manifest);
        } else if (const YamlNode* const reference = value_of(from, "resourceFieldRef"); reference != nullptr && reference->kind == YamlNode::Kind::Map) {
          const std::string name = scalar_text(reference->find("containerName"));
          const YamlNode* const asked = name.empty() ? &container : container_called(*containers, name);
          if (asked != nullptr) answer = amount(*reference, *asked);
        }
        if (answer) put_value(entry, *answer);
      }
    }
  }
}

}  // namespace dtrain
