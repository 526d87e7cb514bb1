#include "schema/spec_check.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "schema/decimal.h"
#include "schema/quote.h"
#include "schema/suggest.h"

namespace dtrain {

namespace {

using Kind = Shape::Kind;

constexpr std::string_view kMergeKey = "<<";
constexpr std::string_view kNoMergeKeys = "merge keys are not supported; repeat the keys";

// What stands there, for "got ...".
std::string describe(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::Null:
      return "nothing";
    case YamlNode::Kind::List:
      return "a list";
    case YamlNode::Kind::Map:
      return "a map";
    case YamlNode::Kind::Scalar:
      break;
  }
  YamlNode unquoted = node;
  unquoted.plain = true;
  if (!node.plain && as_number(unquoted)) {
    return fmt::format("the text {} in quotes", in_quotes(node.text));
  }
  return node.text.empty() ? "an empty text" : in_quotes(node.text);
}

// Whether the value is written as the shape wants it: its kind, not its range.
bool is_written_as(const Shape& shape, const YamlNode& node) {
  switch (shape.kind) {
    case Kind::Boolean:
      return as_boolean(node).has_value();
    case Kind::False:
      return as_boolean(node) == false;
    case Kind::Nothing:
      return node.kind == YamlNode::Kind::Null;
    case Kind::Integer:
    case Kind::Number:
      return as_number(node).has_value();
    case Kind::Text:
    case Kind::Word:
      return node.kind == YamlNode::Kind::Scalar;
    case Kind::List:
      return node.kind == YamlNode::Kind::List;
    case Kind::Map:
    case Kind::Dict:
      return node.kind == YamlNode::Kind::Map;
    case Kind::Either:
      return select_shape(shape, node) != nullptr;
    case Kind::Refused:
      return true;
  }
  return false;
}

struct KnownPlace {
  std::string path;
  const Shape* shape = nullptr;  // null: there is none
};

// Where else in the file a key of this name belongs: "train.resources.gpus".
KnownPlace find_elsewhere(const Shape& shape, std::string_view name, const std::string& path,
                          const YamlNode* node) {
  for (const Key& key : shape.keys) {
    const std::string at = join_path(path, key.name);
    if (key.shape.kind == Kind::Refused) continue;
    if (key.name == name) return {at, &key.shape};
  }
  for (const Key& key : shape.keys) {
    const YamlNode* below = node ? node->find(key.name) : nullptr;
    if (key.optional_section && !below) continue;
    const auto found = find_elsewhere(key.shape, name, join_path(path, key.name), below);
    if (found.shape) return found;
  }
  for (const Shape& part : shape.parts) {
    if (shape.kind == Kind::Dict) continue;
    if (auto found = find_elsewhere(part, name, path, node); found.shape) return found;
  }
  return {};
}

// The key of `map` whose name is nearest to this one and that takes the value, as this one does not: "epochs" for
// `epoch: 3`. Null when there is none.
const Key* key_beside(const Shape& map, std::string_view name, const YamlNode& value) {
  std::vector<std::string_view> names;
  for (const Key& key : map.keys) {
    const bool takes = key.shape.kind != Kind::Refused && select_shape(key.shape, value) != nullptr;
    if (takes && key.name == name) return nullptr;
    if (takes) names.push_back(key.name);
  }
  const std::string_view meant = nearest(name, names);
  const auto found = std::ranges::find(map.keys, meant, &Key::name);
  return meant.empty() ? nullptr : &*found;
}

// `place`, and on to where each map of one key leads: {epoch: 3} below train.engine is train.engine.epochs.
std::string path_meant(const KnownPlace& place, const YamlNode& value) {
  const Shape* shape = select_shape(*place.shape, value);
  if (!shape || value.entries.size() != 1) return place.path;
  const YamlEntry& entry = value.entries.front();
  if (shape->kind == Kind::Dict) return join_path(place.path, entry.key);
  const Key* key = key_beside(*shape, entry.key, entry.value);
  for (const Key& known : shape->keys) {
    if (!key && known.name == entry.key) key = &known;
  }
  return key ? path_meant({join_path(place.path, key->name), &key->shape}, entry.value) : place.path;
}

// "mesh: {data: ..., model: ...}": how a name is written that stands for nothing without the keys below it; empty for
// others.
std::string as_map(const Shape& whole, std::string_view name) {
  std::string keys;
  for (const Shape& part : whole.parts) {
    for (const Key& key : part.keys) {
      if (key.name != name) continue;
      for (const Key& below : key.shape.keys) {
        if (below.required) keys += fmt::format("{}{}: ...", keys.empty() ? "" : ", ", below.name);
      }
    }
  }
  return keys.empty() ? "" : fmt::format("{}: {{{}}}", name, keys);
}

// Whether each name that a map of `whole` takes is one of the words of `shape`, too.
bool all_are_words(const Shape& whole, const Shape& shape) {
  return std::ranges::all_of(whole.parts, [&](const Shape& part) {
    return std::ranges::all_of(part.keys, [&](const Key& key) {
      return std::ranges::find(shape.words, key.name) != shape.words.end();
    });
  });
}

class Checker {
 public:
  enum class Pass { First, Again };
  Checker(const Shape& whole, const YamlNode& root, Pass pass, Problems& problems)
      : whole_(whole), root_(root), pass_(pass), problems_(problems) {}

  void check(YamlNode& node, const Shape& shape, const std::string& path, const Key* beside = nullptr) {
    if (node.refused) return;
    const Shape* chosen = select_shape(shape, node);
    if (!chosen) {
      std::string text = fmt::format("got {}, expected {}", describe(node), expectation(shape));
      if (beside) text += fmt::format("; did you mean '{}'?", beside->name);
      refuse(node, path, std::move(text));
      return;
    }
    switch (chosen->kind) {
      case Kind::Boolean:
      case Kind::False:
      case Kind::Nothing:
        return;
      case Kind::Integer:
      case Kind::Number:
        return check_number(node, *chosen, path);
      case Kind::Text:
        return check_text(node, *chosen, path);
      case Kind::Word:
        return check_word(node, *chosen, shape, path);
      case Kind::List:
        return check_list(node, *chosen, path);
      case Kind::Map:
        return check_map(node, *chosen, path);
      case Kind::Dict:
        return check_dict(node, *chosen, path);
      case Kind::Refused:
        return refuse(node, path, std::string(chosen->expected));
      case Kind::Either:
        break;
    }
    INVARIANT(false, "select_shape resolves every Either");
  }

 private:
  void refuse(YamlNode& node, const std::string& path, std::string text) {
    problems_.add(node.place, path, std::move(text));
    node.refused = true;
  }

  void check_number(YamlNode& node, const Shape& shape, const std::string& path) {
    const auto value = as_number(node);
    const bool whole = shape.kind == Kind::Number || as_integer(node).has_value();
    if (!value || !whole || *value < shape.minimum || *value > shape.maximum) {
      refuse(node, path, fmt::format("got {}, expected {}", node.text, expectation(shape)));
    }
  }

  void check_text(YamlNode& node, const Shape& shape, const std::string& path) {
    if (!shape.format->accepts(node.text)) {
      refuse(node, path, fmt::format("got {}, expected {}", describe(node), expectation(shape)));
    }
  }

  // `shape` is that of `whole` which takes words.
  void check_word(YamlNode& node, const Shape& shape, const Shape& whole, const std::string& path) {
    for (const std::string_view word : shape.words) {
      if (node.text == word) return;
    }
    if (const std::string map = as_map(whole, node.text); !map.empty()) {
      return refuse(node, path, fmt::format("got {}, expected '{}'", describe(node), map));
    }
    std::string text = fmt::format("got {}, expected {}", describe(node),
                                   expectation(all_are_words(whole, shape) ? shape : whole));
    const std::string_view meant = nearest(node.text, shape.words);
    if (!meant.empty()) text += fmt::format("; did you mean '{}'?", meant);
    refuse(node, path, std::move(text));
  }

  void check_list(YamlNode& node, const Shape& shape, const std::string& path) {
    if (node.items.size() < shape.least || node.items.size() > shape.most) {
      const std::string range = shape.least == shape.most
                                    ? ""
                                    : fmt::format(" with {} to {} entries", shape.least, shape.most);
      refuse(node, path,
             fmt::format("got a list of {}, expected {}{}", node.items.size(), shape.expected, range));
      return;
    }
    for (size_t i = 0; i < node.items.size(); ++i) {
      check(node.items[i], shape.parts[0], join_path(path, i));
    }
  }

  void check_map(YamlNode& node, const Shape& shape, const std::string& path) {
    bool unknown = pass_ == Pass::Again;  // keys are as they were
    for (YamlEntry& entry : node.entries) {
      const Key* known = nullptr;
      for (const Key& key : shape.keys) {
        if (key.name == entry.key) known = &key;
      }
      if (pass_ == Pass::Again && (!known || known->shape.kind == Kind::Refused)) continue;
      if (known && known->shape.kind == Kind::Refused) {
        problems_.add(entry.place, join_path(path, entry.key), std::string(known->shape.expected));
        entry.value.refused = true;
      } else if (known) {
        const bool taken = select_shape(known->shape, entry.value) != nullptr;
        check(entry.value, known->shape, join_path(path, entry.key),
              taken ? nullptr : key_beside(shape, entry.key, entry.value));
      } else {
        unknown = true;
        entry.value.refused = true;
        problems_.add(entry.place, join_path(path, entry.key), describe_unknown(entry, shape));
      }
    }
    // Next to an unknown key, a missing one is most likely the same mistake seen twice.
    if (unknown) return;
    for (const Key& key : shape.keys) {
      if (key.required && !node.find(key.name)) {
        problems_.add(
            node.place, path,
            fmt::format("the key '{}' is missing, expected {}", key.name, expectation(key.shape)));
      }
    }
  }

  std::string describe_unknown(const YamlEntry& entry, const Shape& shape) const {
    const std::string& name = entry.key;
    if (name == kMergeKey) return std::string(kNoMergeKeys);
    std::vector<std::string_view> known, listed;
    for (const Key& key : shape.keys) {
      if (key.shape.kind == Kind::Refused) continue;
      known.push_back(key.name);
      if (!key.unlisted) listed.push_back(key.name);
    }
    const KnownPlace elsewhere = find_elsewhere(whole_, name, "", &root_);
    if (elsewhere.shape) {
      return fmt::format("unknown key; did you mean {}?", path_meant(elsewhere, entry.value));
    }
    const std::string_view meant = nearest(name, known);
    if (!meant.empty()) return fmt::format("unknown key; did you mean '{}'?", meant);
    if (known.empty()) return "unknown key, expected none";
    std::string all;
    for (const std::string_view key : listed)
      all += fmt::format("{}{}", all.empty() ? "" : ", ", key);
    return fmt::format("unknown key, expected one of {}", all);
  }

  void check_dict(YamlNode& node, const Shape& shape, const std::string& path) {
    if (node.entries.size() > shape.most) {
      refuse(node, path,
             fmt::format("got {} entries, expected at most {}", node.entries.size(), shape.most));
      return;
    }
    for (YamlEntry& entry : node.entries) {
      const std::string at = join_path(path, entry.key);
      if (!shape.format->accepts(entry.key)) {
        entry.value.refused = true;
        problems_.add(entry.place, at,
                      entry.key == kMergeKey
                          ? std::string(kNoMergeKeys)
                          : fmt::format("{} is not {}", in_quotes(entry.key), shape.format->expected));
      } else {
        check(entry.value, shape.parts[0], at);
      }
    }
  }

  const Shape& whole_;
  const YamlNode& root_;
  const Pass pass_;
  Problems& problems_;
};

}  // namespace

void check_tree(YamlNode& root, const Shape& shape, Problems& problems) {
  Checker(shape, root, Checker::Pass::First, problems).check(root, shape, "");
}

void check_part(YamlNode& node, const Shape& shape, const std::string& path, Problems& problems) {
  Checker(shape, node, Checker::Pass::First, problems).check(node, shape, path);
}

void check_again(YamlNode& node, const Shape& shape, const std::string& path, Problems& problems) {
  Checker(shape, node, Checker::Pass::Again, problems).check(node, shape, path);
}

const Shape* select_shape(const Shape& shape, const YamlNode& node) {
  if (shape.kind != Kind::Either) return is_written_as(shape, node) ? &shape : nullptr;
  for (const Shape& part : shape.parts) {
    if (const Shape* chosen = select_shape(part, node)) return chosen;
  }
  return nullptr;
}

std::optional<bool> as_boolean(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::Scalar || !node.plain) return std::nullopt;
  if (node.text == "true" || node.text == "True" || node.text == "TRUE") return true;
  if (node.text == "false" || node.text == "False" || node.text == "FALSE") return false;
  return std::nullopt;
}

std::optional<double> as_number(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::Scalar || !node.plain || node.text.size() > 400) {
    return std::nullopt;
  }
  std::string_view text = node.text;
  if (text.starts_with('+')) text.remove_prefix(1);
  const size_t first = text.starts_with('-') ? 1 : 0;
  // from_chars also reads "inf" and "nan", which are no numbers to anyone here.
  if (text.size() <= first || (!is_digit(text[first]) && text[first] != '.')) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> as_integer(const YamlNode& node) {
  if (!as_number(node)) return std::nullopt;
  int64_t value = 0;
  const char* begin = node.text.data() + (node.text.starts_with('+') ? 1 : 0);
  const auto [end, error] = std::from_chars(begin, node.text.data() + node.text.size(), value);
  if (error != std::errc() || end != node.text.data() + node.text.size()) return std::nullopt;
  return value;
}

}  // namespace dtrain
