#include "schema/spec_overrides.h"

#include <algorithm>
#include <span>

#include "schema/quote.h"
#include "schema/spec_keys.h"
#include "schema/text_formats.h"

namespace dtrain {

namespace {

constexpr size_t kMaxKeyParts = 16;

std::vector<std::string_view> split_key(std::string_view key) {
  std::vector<std::string_view> parts;
  while (parts.size() <= kMaxKeyParts) {
    const size_t dot = key.find('.');
    parts.push_back(key.substr(0, dot));
    if (dot == std::string_view::npos) break;
    key.remove_prefix(dot + 1);
  }
  return parts;
}

bool is_good_key(const std::vector<std::string_view>& parts) {
  return parts.size() <= kMaxKeyParts &&
         std::none_of(parts.begin(), parts.end(),
                      [](std::string_view part) { return part.empty() || !is_utf8(part); });
}

// The value of `key` in `map`, made when there is none.
YamlNode& child(YamlNode& map, std::string_view key, Place place) {
  if (map.kind == YamlNode::Kind::Null) {
    map.kind = YamlNode::Kind::Map;
    map.place = place;
  }
  if (YamlNode* found = map.find(key)) return *found;
  YamlNode fresh;
  fresh.place = place;
  map.entries.push_back({std::string(key), place, std::move(fresh)});
  return map.entries.back().value;
}

// Puts `value` at the end of the key's path. A value of another kind on the way is in the way.
void put(YamlNode& root, const std::vector<std::string_view>& parts, YamlNode value,
         Problems& problems) {
  const Place place = value.place;
  YamlNode* node = &root;
  std::string path;
  for (const std::string_view part : parts) {
    if (node->kind == YamlNode::Kind::Scalar || node->kind == YamlNode::Kind::List) {
      problems.add(place, path,
                   fmt::format("this is {} in the file and has no keys; set it as a whole",
                               node->kind == YamlNode::Kind::List ? "a list" : in_quotes(node->text)));
      return;
    }
    node = &child(*node, part, place);
    path = join_path(path, part);
  }
  *node = std::move(value);
}

// Whether such a path of keys may be there.
bool has_key(const Shape& shape, std::span<const std::string_view> parts) {
  if (parts.empty()) return shape.kind != Shape::Kind::Refused;
  if (shape.kind == Shape::Kind::Either) return std::ranges::any_of(shape.parts, [&](const Shape& part) { return has_key(part, parts); });
  if (shape.kind == Shape::Kind::Dict) return has_key(shape.parts.front(), parts.subspan(1));
  return std::ranges::any_of(shape.keys, [&](const Key& key) {
    const bool may_be_left_out = parts.size() > 1 || !key.required;
    return key.name == parts.front() && may_be_left_out && has_key(key.shape, parts.subspan(1));
  });
}

// False when nothing stands there.
bool erase(YamlNode& node, std::span<const std::string_view> parts) {
  if (parts.size() > 1) {
    YamlNode* below = node.find(parts.front());
    return below != nullptr && erase(*below, parts.subspan(1));
  }
  return std::erase_if(node.entries, [&](const YamlEntry& entry) { return entry.key == parts.front(); }) > 0;
}

void put_place(YamlNode& node, Place place) {
  node.place = place;
  for (YamlNode& item : node.items) put_place(item, place);
  for (YamlEntry& entry : node.entries) {
    entry.place = place;
    put_place(entry.value, place);
  }
}

void apply_set(YamlNode& root, const std::string& key, const std::string& text, int source,
               Problems& problems) {
  const std::vector<std::string_view> parts = split_key(key);
  if (!is_good_key(parts)) {
    problems.add({source, 0, 0}, "", "expected KEY=VALUE with a key such as train.resources.gpus");
    return;
  }
  // "'/a b/python' train.py" is a command, and no YAML.
  Problems unread("", false);
  const bool is_text = (text.starts_with('\'') || text.starts_with('"')) && (!parse_yaml(text, source, unread) || !unread.empty());
  auto value = parse_yaml(is_text ? yaml_scalar(text) : text, source, problems);
  if (!value) return;
  // Spelt out: an empty text is Null, too, and may be a shell's variable that has no value. A key that isn't there to be
  // taken out is as it should be, unless there is none of that name.
  const bool takes_out = text == "null" || text == "~";
  if (takes_out && (erase(root, parts) || has_key(spec_shape(), parts))) return;
  put_place(*value, {source, 0, 0});
  put(root, parts, std::move(*value), problems);
}

void apply_image(YamlNode& root, const std::string& image, Problems& problems) {
  YamlNode* const train = root.find("train");
  if (train == nullptr) return;
  for (YamlEntry& section : train->entries) {
    YamlNode* const roles = section.value.find("distributed");
    if (roles == nullptr) continue;
    for (YamlEntry& role : roles->entries) {
      std::erase_if(role.value.entries, [](const YamlEntry& entry) { return entry.key == "image"; });
    }
  }
  if (image.empty()) {
    std::erase_if(train->entries, [](const YamlEntry& entry) { return entry.key == "image" || entry.key == "mounts"; });
    return;
  }
  YamlNode name;
  name.kind = YamlNode::Kind::Scalar;
  name.text = image;
  name.place = {problems.add_source("--image " + image), 0, 0};
  const YamlNode* const said = train->find("image");
  const bool has_steps = said != nullptr && said->kind == YamlNode::Kind::Map;
  put(root, has_steps ? std::vector<std::string_view>{"train", "image", "name"} : std::vector<std::string_view>{"train", "image"},
      std::move(name), problems);
}

// Text stands for itself, so that `-p note=a: b` needs no quotes; a list or a range is YAML.
std::optional<YamlNode> read_parameter(const std::string& text, int source, Problems& problems) {
  if (is_list_or_map(text)) return parse_yaml(text, source, problems);
  if (!is_utf8(text)) {
    problems.add({source, 0, 0}, "", "the value is not UTF-8 text");
    return std::nullopt;
  }
  if (text.find('\0') != std::string::npos || text.size() > kYamlScalarMaxBytes) {
    problems.add(
        {source, 0, 0}, "",
        fmt::format("the value holds a NUL byte or more than {} bytes", kYamlScalarMaxBytes));
    return std::nullopt;
  }
  YamlNode node;
  node.kind = YamlNode::Kind::Scalar;
  node.plain = true;
  node.text = text;
  return node;
}

}  // namespace

bool is_list_or_map(const std::string& text) {
  if ((!text.starts_with('[') && !text.starts_with('{')) || text.starts_with("{{")) return false;
  Problems unread("", false);
  if (parse_yaml(text, 0, unread) && unread.empty()) return true;
  // What stands after the bracket that closes it makes it another text: "[A] b".
  int depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[' || text[at] == '{') ++depth;
    if (text[at] == ']' || text[at] == '}') --depth;
    if (depth == 0) return text.find_first_not_of(" \t\n", at + 1) == text.npos;
  }
  return true;
}

std::vector<AddedParameter> apply_overrides(YamlNode& root, const ParseOptions& options,
                                            Problems& problems) {
  for (const auto& [key, text] : options.set) {
    apply_set(root, key, text, problems.add_source(fmt::format("--set {}={}", key, text)),
              problems);
  }
  if (options.image) apply_image(root, *options.image, problems);
  std::vector<AddedParameter> added;
  for (const auto& [name, text] : options.parameters) {
    const int source = problems.add_source(fmt::format("-p {}={}", name, text));
    const Place place{source, 0, 0};
    if (!kParameterName.accepts(name)) {
      problems.add(place, "", fmt::format("{} is not {}", in_quotes(name), kParameterName.expected));
      continue;
    }
    auto value = read_parameter(text, source, problems);
    if (!value) value.emplace().refused = true;   // it has a value all the same
    put_place(*value, place);
    YamlNode* train = root.find("train");
    YamlNode* parameters = train ? train->find("parameters") : nullptr;
    if (!parameters || !parameters->find(name)) added.push_back({name, place});
    put(root, {"train", "parameters", name}, std::move(*value), problems);
  }
  return added;
}

}  // namespace dtrain
