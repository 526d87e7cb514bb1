#include "schema/kubeflow_volumes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "schema/kubeflow_container.h"
#include "schema/kubeflow_yaml.h"
#include "schema/mounts.h"
#include "schema/spec_read.h"

namespace dtrain {
namespace {

std::string text_of(const YamlNode* map, std::string_view key) {
  const YamlNode* const node = value_of(map, key);
  return node == nullptr || node->kind != YamlNode::Kind::Scalar ? "" : node->text;
}

const YamlNode* volume_called(const YamlNode* volumes, const std::string& name) {
  if (volumes == nullptr) return nullptr;
  const auto called = std::ranges::find_if(volumes->items, [&](const YamlNode& one) { return text_of(&one, "name") == name; });
  return called == volumes->items.end() ? nullptr : &*called;
}

// Empty: it is not to be had here.
std::string mount_text(const YamlNode& volume, const YamlNode& mount) {
  const std::string path = text_of(&mount, "mountPath"), part = text_of(&mount, "subPath");
  if (value_of(&volume, "emptyDir") != nullptr) return parse_mount(path) ? path : "";
  std::string source = text_of(value_of(&volume, "hostPath"), "path");
  if (source.empty() || value_of(&mount, "subPathExpr") != nullptr) return "";
  if (!part.empty()) source += "/" + part;
  const HostMount wanted{source, path, text_of(&mount, "readOnly") == "true"};
  const auto mounted = parse_mount(to_string(wanted));
  return mounted && mounted->source == source && mounted->path == path ? to_string(*mounted) : "";
}

// Files of a ConfigMap, in its directory, or one of them by its own path. Null: there is no such file, or place.
YamlNode written_files(const YamlNode& config_map, const YamlNode& mount) {
  const std::string path = text_of(&mount, "mountPath"), part = text_of(&mount, "subPath");
  YamlNode none;
  if (!parse_mount(path)) return none;
  std::string line, made;
  for (const YamlEntry& file : config_map.find("files")->entries) {
    if (!part.empty() && file.key != part) continue;
    const std::string at = part.empty() ? path + "/" + file.key : path;
    const std::string word = quoted_for_shell(at), directory = at.substr(0, at.rfind('/'));
    if (!line.empty()) line += " && ";
    if (directory != made && !directory.empty()) line += fmt::format("mkdir -p {} && ", quoted_for_shell(directory));
    line += fmt::format("printf %s {} > {}", quoted_for_shell(file.value.text), word);
    made = directory;
    if (config_map.find("executable") != nullptr) line += " && chmod +x " + word;
  }
  if (line.empty() && !part.empty()) return none;
  YamlNode written = yaml_map();
  yaml_put(written, "path", yaml_text(path));
  yaml_put(written, "run", yaml_text(line.empty() ? "mkdir -p " + quoted_for_shell(path) : line));
  return written;
}

// Null: it is not to be had here.
YamlNode mounted(const YamlNode& volume, const YamlNode& mount) {
  const YamlNode* const config_map = value_of(&volume, "configMap");
  if (value_of(config_map, "files") != nullptr) return written_files(*config_map, mount);
  std::string text = mount_text(volume, mount);
  return text.empty() ? YamlNode() : yaml_text(std::move(text));
}

}  // namespace

bool is_optional_source(const YamlNode& source) {
  return std::ranges::any_of(source.entries, [](const YamlEntry& entry) { return text_of(&entry.value, "optional") == "true"; });
}

void simplify_volumes(YamlNode& pod, std::vector<std::string>& missed) {
  const YamlNode* const volumes = pod.find("volumes");
  YamlNode* const containers = pod.find("containers");
  if (containers != nullptr) {
    for (YamlNode& container : containers->items) {
      YamlNode* const mounts = container.kind == YamlNode::Kind::Map ? container.find("volumeMounts") : nullptr;
      if (mounts == nullptr) continue;
      std::erase_if(mounts->items, [&](YamlNode& mount) {
        const std::string name = text_of(&mount, "name");
        const YamlNode* const volume = volume_called(volumes, name);
        YamlNode made = volume == nullptr ? YamlNode() : mounted(*volume, mount);
        if (made.kind == YamlNode::Kind::Null) {
          if (volume != nullptr && is_optional_source(*volume)) return true;
          std::string said = fmt::format("the volume {} (line {}), of {}", name, volume == nullptr ? mount.place.line : volume->place.line, text_of(&mount, "mountPath"));
          if (std::ranges::find(missed, said) == missed.end()) missed.push_back(std::move(said));
          return true;
        }
        made.place = mount.place;
        mount = std::move(made);
        return false;
      });
    }
  }
  std::erase_if(pod.entries, [](const YamlEntry& entry) { return entry.key == "volumes"; });
}

}  // namespace dtrain
