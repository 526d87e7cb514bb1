#include "schema/kubeflow_volumes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

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

}  // namespace

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
        std::string text = volume == nullptr ? "" : mount_text(*volume, mount);
        if (text.empty()) {
          std::string said = fmt::format("the volume {} (line {})", name, volume == nullptr ? mount.place.line : volume->place.line);
          if (std::ranges::find(missed, said) == missed.end()) missed.push_back(std::move(said));
          return true;
        }
        YamlNode scalar;
        scalar.kind = YamlNode::Kind::Scalar;
        scalar.place = mount.place;
        scalar.plain = false;
        scalar.text = std::move(text);
        mount = std::move(scalar);
        return false;
      });
    }
  }
  std::erase_if(pod.entries, [](const YamlEntry& entry) { return entry.key == "volumes"; });
}

}  // namespace dtrain
