// YAML text as a tree that knows where each part was written.
//
// The only door to yaml-cpp, and the guard before it: whatever the text (an anchor bomb, 100 MB, a
// thousand brackets, bytes that are not UTF-8), the answer is a bounded tree or a clear problem,
// soon.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/problems.h"

namespace dtrain {

struct YamlEntry;

struct YamlNode {
  enum class Kind { Null, Scalar, List, Map };
  Kind kind = Kind::Null;
  Place place;
  bool plain = false;              // a scalar without quotes: 3 is a number, "3" is text
  bool folded = false;             // a block scalar that starts with '>'
  std::string text;                // of a scalar
  std::vector<YamlNode> items;     // of a list
  std::vector<YamlEntry> entries;  // of a map, in file order, each key once
  bool refused = false;            // a problem was reported: readers pass it over

  const YamlNode* find(std::string_view key) const;
  YamlNode* find(std::string_view key);
};

struct YamlEntry {
  std::string key;
  Place place;  // of the key
  YamlNode value;
};

inline constexpr size_t kYamlMaxBytes = 1 << 20;
inline constexpr size_t kYamlScalarMaxBytes = 100'000;  // a command line's limit is near 128 KiB
inline constexpr int kYamlMaxDepth = 32;
inline constexpr size_t kYamlMaxNodes = 50'000;  // aliases count with what they stand for

// Those that hold anything. Nothing when the text can't be read on; then `problems` says why.
// Duplicate keys and keys that are no text are problems too, but the rest is still returned.
std::optional<std::vector<YamlNode>> parse_yaml_documents(std::string_view text, int source,
                                                          Problems& problems);
// The only one; a second is a problem. An empty text is Null.
std::optional<YamlNode> parse_yaml(std::string_view text, int source, Problems& problems);

// For paths in messages: "train" and "run" make "train.run".
std::string join_path(std::string_view path, std::string_view key);
std::string join_path(std::string_view path, size_t index);

}  // namespace dtrain
