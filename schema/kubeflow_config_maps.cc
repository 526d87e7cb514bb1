#include "schema/kubeflow_config_maps.h"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <utility>

#include "schema/base64.h"
#include "schema/kubeflow_yaml.h"
#include "schema/quote.h"
#include "schema/spec_read.h"
#include "schema/text_formats.h"

namespace dtrain {

namespace {

using Texts = std::map<std::string, const YamlNode*>;   // by key

bool is_true(const YamlNode* node) { return scalar_text(node) == "true"; }

YamlNode placed(YamlNode node, const Place& place) {
  node.place = place;
  return node;
}

// What is in a map is no reference to another variable.
std::string without_references(const std::string& text) {
  std::string out;
  for (const char each : text) out += each == '$' ? "$$" : std::string(1, each);
  return out;
}

class ConfigMaps {
 public:
  ConfigMaps(const std::vector<YamlNode>& documents, const std::vector<YamlNode>& secrets, Problems& problems) : problems_(problems) {
    for (const YamlNode& secret : secrets) add_secret(secret);
    for (const YamlNode& document : documents) {
      Texts& texts = maps_[scalar_text(value_of(document.find("metadata"), "name"))];
      if (document.find("binaryData") != nullptr) with_bytes_.insert(scalar_text(value_of(document.find("metadata"), "name")));
      const YamlNode* const data = document.find("data");
      if (data == nullptr) continue;
      for (const YamlEntry& entry : data->entries) {
        if (entry.value.kind == YamlNode::Kind::Scalar) texts.emplace(entry.key, &entry.value);
      }
    }
  }

  void put_into_all_of(YamlNode& node) {
    for (YamlNode& item : node.items) put_into_all_of(item);
    for (YamlEntry& entry : node.entries) {
      if (entry.key == "containers") {
        for (YamlNode& container : entry.value.items) put_into(container);
      } else if (entry.key == "volumes") {
        for (YamlNode& volume : entry.value.items) put_into_volume(volume);
      } else {
        put_into_all_of(entry.value);
      }
    }
  }
  TakenOfFile take() { return std::move(taken_); }

 private:
  using Secret = std::map<std::string, std::string>;

  // What is plain text there counts before what is not.
  void add_secret(const YamlNode& document) {
    Secret& secret = secrets_[scalar_text(value_of(document.find("metadata"), "name"))];
    const YamlNode* const plain = document.find("stringData");
    const YamlNode* const coded = document.find("data");
    if (plain != nullptr) {
      for (const YamlEntry& entry : plain->entries) secret.emplace(entry.key, entry.value.text);
    }
    if (coded == nullptr) return;
    for (const YamlEntry& entry : coded->entries) {
      auto text = base64_decoded(entry.value.text);
      if (!text) problems_.add(entry.value.place, "", fmt::format("{} of a Secret's data is no base64; stringData takes the text itself", in_quotes(entry.key)));
      if (text) secret.emplace(entry.key, std::move(*text));
    }
  }

  void put_into(YamlNode& container) {
    values_.clear();
    put_variables(container);
    for (auto& [name, value] : values_) {
      const auto [known, is_new] = taken_.values.emplace(name, value);
      if (is_new || known->second == value) continue;
      problems_.add(container.place, "", fmt::format("{} is another Secret's here than in the other containers; give the two variables two names", in_quotes(name)));
    }
  }

  void put_variables(YamlNode& container) {
    std::vector<YamlNode> variables = take_whole_maps(container);
    YamlNode* env = container.find("env");
    if (env == nullptr && variables.empty()) return;
    if (env == nullptr) env = &container.entries.emplace_back(YamlEntry{"env", container.place, {}}).value;
    if (env->kind != YamlNode::Kind::Null && env->kind != YamlNode::Kind::List) return;
    for (YamlNode& entry : env->items) {
      if (fill(entry)) variables.push_back(std::move(entry));
    }
    env->kind = YamlNode::Kind::List;
    env->items = std::move(variables);
  }

  void put_into_volume(YamlNode& volume) {
    YamlNode* const source = volume.find("configMap");
    const auto map = maps_.find(scalar_text(value_of(source, "name")));
    if (source == nullptr || map == maps_.end() || with_bytes_.contains(map->first)) return;
    taken_.config_maps.insert(map->first);
    YamlNode files = placed(yaml_map(), source->place);
    const YamlNode* const items = value_of(source, "items");
    if (items == nullptr) {
      for (const auto& [key, text] : map->second) yaml_put(files, key, placed(yaml_text(text->text), text->place));
    } else {
      for (const YamlNode& item : items->items) {
        const auto found = map->second.find(scalar_text(item.find("key")));
        if (found != map->second.end()) {
          yaml_put(files, scalar_text(item.find("path")), placed(yaml_text(found->second->text), found->second->place));
        } else if (!is_true(source->find("optional"))) {
          add_missing(item.place, "ConfigMap", map->first, scalar_text(item.find("key")));
        }
      }
    }
    const bool executable = is_executable(scalar_text(source->find("defaultMode")));
    yaml_put(*source, "files", std::move(files));
    if (executable) yaml_put(*source, "executable", yaml_bare("true"));
  }
  // Octal as everybody writes it, or what JSON makes of it.
  static bool is_executable(const std::string& mode) {
    constexpr unsigned long kAnybody = 0111;
    const bool is_octal = mode.starts_with('0');
    return (std::strtoul(mode.c_str() + (mode.starts_with("0o") ? 2 : 0), nullptr, is_octal ? 8 : 10) & kAnybody) != 0;
  }

  // The entries that `envFrom` means, which loses them.
  std::vector<YamlNode> take_whole_maps(YamlNode& container) {
    std::vector<YamlNode> variables;
    YamlNode* const sources = container.find("envFrom");
    if (sources == nullptr) return variables;
    std::erase_if(sources->items, [&](const YamlNode& source) {
      if (const auto secret = secrets_.find(scalar_text(value_of(source.find("secretRef"), "name"))); secret != secrets_.end() && source.find("secretRef") != nullptr) {
        for (const auto& [key, text] : secret->second) {
          const std::string name = scalar_text(source.find("prefix")) + key;
          if (kEnvName.accepts(name)) variables.push_back(secret_variable(name, *secret, key, source.place));
        }
        return true;
      }
      const auto found = maps_.find(scalar_text(value_of(source.find("configMapRef"), "name")));
      if (source.find("configMapRef") == nullptr || found == maps_.end()) return false;
      taken_.config_maps.insert(found->first);
      for (const auto& [key, text] : found->second) {
        const std::string name = scalar_text(source.find("prefix")) + key;
        if (kEnvName.accepts(name)) variables.push_back(variable(name, *text));   // others Kubernetes passes over, too
      }
      return true;
    });
    if (sources->items.empty()) std::erase_if(container.entries, [](const YamlEntry& entry) { return entry.key == "envFrom"; });
    return variables;
  }

  YamlNode secret_variable(const std::string& name, const std::pair<const std::string, Secret>& secret, const std::string& key, const Place& place) {
    const std::string& value = secret.second.at(key);
    taken_.secrets.insert(secret.first);
    values_[name] = value;
    if (value.find('\0') != std::string::npos) problems_.add(place, "", fmt::format("{} of the Secret {} is no text, and can't be a variable", in_quotes(key), in_quotes(secret.first)));
    YamlNode reference = placed(yaml_map(), place), from = reference, made = reference;
    yaml_put(reference, "name", placed(yaml_text(secret.first), place));
    yaml_put(reference, "key", placed(yaml_text(key), place));
    yaml_put(from, "secretKeyRef", std::move(reference));
    yaml_put(made, "name", placed(yaml_text(name), place));
    yaml_put(made, "valueFrom", std::move(from));
    return made;
  }

  // False: the variable is not there.
  bool fill(YamlNode& entry) {
    const YamlNode* const asked = value_of(entry.find("valueFrom"), "secretKeyRef");
    const auto secret = secrets_.find(scalar_text(value_of(asked, "name")));
    if (asked == nullptr || secret == secrets_.end()) return fill_from_map(entry);
    const std::string key = scalar_text(value_of(asked, "key"));
    if (secret->second.contains(key)) {
      entry = secret_variable(scalar_text(entry.find("name")), *secret, key, entry.place);
      return true;
    }
    if (is_true(value_of(asked, "optional"))) return false;
    add_missing(asked->place, "Secret", secret->first, key);
    return true;
  }
  bool fill_from_map(YamlNode& entry) {
    const YamlNode* const reference = value_of(entry.find("valueFrom"), "configMapKeyRef");
    const auto map = maps_.find(scalar_text(value_of(reference, "name")));
    if (reference == nullptr || map == maps_.end()) return true;
    taken_.config_maps.insert(map->first);
    const std::string key = scalar_text(value_of(reference, "key"));
    const auto found = map->second.find(key);
    if (found != map->second.end()) {
      entry = variable(scalar_text(entry.find("name")), *found->second, entry.place);
      return true;
    }
    if (is_true(value_of(reference, "optional"))) return false;
    add_missing(reference->place, "ConfigMap", map->first, key);
    return true;
  }
  void add_missing(const Place& place, const char* kind, const std::string& map, const std::string& key) {
    problems_.add(place, "", fmt::format("the {} {} of this file has no {}", kind, in_quotes(map), in_quotes(key)));
  }

  static YamlNode variable(const std::string& name, const YamlNode& text) { return variable(name, text, text.place); }
  static YamlNode variable(const std::string& name, const YamlNode& text, const Place& place) {
    YamlNode made = placed(yaml_map(), place);
    yaml_put(made, "name", placed(yaml_text(name), place));
    yaml_put(made, "value", placed(yaml_text(without_references(text.text)), text.place));
    return made;
  }

  Problems& problems_;
  std::map<std::string, Texts> maps_;   // by name
  std::set<std::string> with_bytes_;    // of which some are no texts
  std::map<std::string, Secret> secrets_;
  std::map<std::string, std::string> values_;   // of the container that is read
  TakenOfFile taken_;
};

}  // namespace

TakenOfFile put_config_maps(const std::vector<YamlNode>& config_maps, const std::vector<YamlNode>& secrets, YamlNode& job, Problems& problems) {
  ConfigMaps maps(config_maps, secrets, problems);
  maps.put_into_all_of(job);
  return maps.take();
}

}  // namespace dtrain
