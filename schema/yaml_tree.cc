#include "schema/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <map>
#include <sstream>

#include "schema/quote.h"
#include "schema/yaml_mistake.h"

namespace dtrain {

namespace {

constexpr std::string_view kCoreTag = "tag:yaml.org,2002:";
constexpr size_t kMaxAnchors = 100;
constexpr size_t kMaxKeys = 1000;  // of one map; looking for duplicates is quadratic

// Thrown through yaml-cpp, which has no other way to stop early, and caught in parse_yaml_documents.
struct Stop {
  YAML::Mark mark;
  std::string path;
  std::string text;
};

size_t count_nodes(const YamlNode& node) {
  size_t count = 1;
  for (const YamlNode& item : node.items) count += count_nodes(item);
  for (const YamlEntry& entry : node.entries) count += count_nodes(entry.value);
  return count;
}

size_t count_bytes(const YamlNode& node) {
  size_t bytes = node.text.size();
  for (const YamlNode& item : node.items) bytes += count_bytes(item);
  for (const YamlEntry& entry : node.entries) bytes += entry.key.size() + count_bytes(entry.value);
  return bytes;
}

int depth_below(const YamlNode& node) {
  int deepest = 0;
  for (const YamlNode& item : node.items) deepest = std::max(deepest, depth_below(item));
  for (const YamlEntry& entry : node.entries) {
    deepest = std::max(deepest, depth_below(entry.value));
  }
  return deepest + 1;
}

// Builds the tree from yaml-cpp's events: one frame for each list or map that is still open.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, int source, Problems& problems)
      : text_(text), source_(source), problems_(problems) {}

  std::vector<YamlNode> take_documents() { return std::move(documents_); }

  // Reports the keys that were no text, except on a line that is no valid YAML anyway: `{{ x }} y`
  // is one mistake, not two.
  void report_bad_keys(int broken_line) {
    for (BadKey& key : bad_keys_) {
      if (key.place.line != broken_line) problems_.add(key.place, key.path, std::move(key.text));
    }
  }

  void OnDocumentStart(const YAML::Mark&) override { anchors_.clear(); }  // each has its own
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    complete(make_node(YamlNode::Kind::Null, mark), anchor, mark);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) stop(mark, "this alias stands for something it is a part of");
    charge(mark, count_nodes(found->second), count_bytes(found->second));
    if (depth_below(found->second) + static_cast<int>(frames_.size()) > kYamlMaxDepth) {
      stop(mark, fmt::format("nested more than {} levels deep", kYamlMaxDepth));
    }
    YamlNode copy = found->second;
    copy.place = place(mark);
    complete(std::move(copy), YAML::NullAnchor, mark);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (value.size() > kYamlScalarMaxBytes) {
      stop(mark, fmt::format("a text of {} bytes, expected at most {}; put it in a file of its own",
                             value.size(), kYamlScalarMaxBytes));
    }
    if (value.find('\0') != std::string::npos) stop(mark, "a NUL byte can't be part of a text");
    charge(mark, 0, value.size());
    if (!is_closed(mark)) stop(mark, "the quote that opens here is not closed");
    YamlNode node = make_node(YamlNode::Kind::Scalar, mark);
    node.plain = read_scalar_tag(mark, tag);
    node.folded = !node.plain && is_folded(mark);
    node.text = value;
    complete(std::move(node), anchor, mark);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::List, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::Map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Frame {
    YamlNode node;
    YAML::anchor_t anchor;
    YAML::Mark mark;
    std::optional<std::string> key;  // read, its value not yet
    Place key_place;
    bool drop_value = false;  // the key was no good
  };

  struct BadKey {
    Place place;
    std::string path;
    std::string text;
  };

  Place place(const YAML::Mark& mark) const { return {source_, mark.line + 1, mark.column + 1}; }

  [[noreturn]] void stop(const YAML::Mark& mark, std::string text) const {
    throw Stop{mark, path(), std::move(text)};
  }

  std::string path() const {
    std::string path;
    for (const Frame& frame : frames_) {
      if (frame.node.kind == YamlNode::Kind::List) {
        path = join_path(path, frame.node.items.size());
      } else if (frame.key) {
        path = join_path(path, *frame.key);
      }
    }
    return path;
  }

  YamlNode make_node(YamlNode::Kind kind, const YAML::Mark& mark) {
    charge(mark, 1, 0);
    YamlNode node;
    node.kind = kind;
    node.place = place(mark);
    return node;
  }

  // What the tree may hold in all, copies made for anchors and aliases included.
  void charge(const YAML::Mark& mark, size_t nodes, size_t bytes) {
    nodes_ += nodes;
    bytes_ += bytes;
    if (nodes_ > kYamlMaxNodes || bytes_ > 4 * kYamlMaxBytes) {
      stop(mark, fmt::format("too much in one file, expected at most {} values", kYamlMaxNodes));
    }
  }

  // True when the scalar may be a number, boolean or null rather than text.
  bool read_scalar_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag == "?") return true;
    if (tag == "!" || tag.empty()) return false;
    const std::string_view word = tag;
    if (word.starts_with(kCoreTag)) {
      const std::string_view core = word.substr(kCoreTag.size());
      if (core == "str") return false;
      if (core == "int" || core == "float" || core == "bool") return true;
    }
    stop(mark, fmt::format("the tag {} is not supported; remove it", in_quotes(tag)));
  }

  // Where a value begins whose mark may be that of its anchor or tag.
  size_t value_at(const YAML::Mark& mark) const {
    constexpr std::string_view kBlank = " \t\r\n";
    auto at = mark.pos < 0 ? text_.size() : static_cast<size_t>(mark.pos);
    while (at < text_.size() && (text_[at] == '&' || text_[at] == '!')) {
      at = text_.find_first_not_of(kBlank, std::min(text_.find_first_of(kBlank, at), text_.size()));
    }
    return std::min(at, text_.size());
  }

  bool is_folded(const YAML::Mark& mark) const {
    const size_t at = value_at(mark);
    return at < text_.size() && text_[at] == '>';
  }

  // yaml-cpp takes the end of the file for the end of a quoted text, which then has swallowed all the keys behind it.
  bool is_closed(const YAML::Mark& mark) const {
    const size_t at = value_at(mark);
    if (at >= text_.size() || (text_[at] != '"' && text_[at] != '\'')) return true;
    const char quote = text_[at];
    for (size_t i = at + 1; i < text_.size(); ++i) {
      if (quote == '"' && text_[i] == '\\') {
        ++i;
      } else if (text_[i] == quote) {
        if (quote == '"' || i + 1 >= text_.size() || text_[i + 1] != quote) return true;
        ++i;   // two of them are one of its text
      }
    }
    return false;
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    const bool core =
        tag == "?" || tag == "!" || tag.empty() ||
        tag == fmt::format("{}{}", kCoreTag, kind == YamlNode::Kind::Map ? "map" : "seq");
    if (!core) stop(mark, fmt::format("the tag {} is not supported; remove it", in_quotes(tag)));
    if (frames_.size() >= static_cast<size_t>(kYamlMaxDepth)) {
      throw Stop{mark, "", fmt::format("nested more than {} levels deep", kYamlMaxDepth)};
    }
    frames_.push_back({make_node(kind, mark), anchor, mark, std::nullopt, {}, false});
  }

  void close() {
    Frame frame = std::move(frames_.back());
    frames_.pop_back();
    complete(std::move(frame.node), frame.anchor, frame.mark);
  }

  // A node is whole: it becomes the root, the next item, a key, or the value of the last key.
  void complete(YamlNode node, YAML::anchor_t anchor, const YAML::Mark& mark) {
    if (anchor != YAML::NullAnchor) {
      if (anchors_.size() >= kMaxAnchors) {
        stop(mark, fmt::format("more than {} anchors", kMaxAnchors));
      }
      charge(mark, count_nodes(node), count_bytes(node));
      anchors_.emplace(anchor, node);
    }
    if (frames_.empty()) {
      if (node.kind != YamlNode::Kind::Null) documents_.push_back(std::move(node));
      return;
    }
    Frame& frame = frames_.back();
    if (frame.node.kind == YamlNode::Kind::List) {
      frame.node.items.push_back(std::move(node));
    } else if (!frame.key) {
      take_key(frame, node, mark);
    } else {
      // yaml-cpp places an absent value where the next thing stands.
      if (node.kind == YamlNode::Kind::Null) node.place = frame.key_place;
      if (!frame.drop_value) {
        frame.node.entries.push_back({std::move(*frame.key), frame.key_place, std::move(node)});
      }
      frame.key.reset();
    }
  }

  void take_key(Frame& frame, const YamlNode& key, const YAML::Mark& mark) {
    frame.drop_value = true;
    if (key.kind != YamlNode::Kind::Scalar) {
      frame.node.refused = true;
      bad_keys_.push_back({frame.node.place, path(), describe_bad_key(key)});
      frame.key = std::string("?");  // assigned as it is, GCC 12 warns of an overlap that is none
      return;
    }
    if (frame.node.entries.size() >= kMaxKeys) {
      stop(mark, fmt::format("more than {} keys in one map", kMaxKeys));
    }
    const YamlEntry* earlier = nullptr;
    for (const YamlEntry& entry : frame.node.entries) {
      if (entry.key == key.text) earlier = &entry;
    }
    if (earlier) {
      problems_.add(key.place, join_path(path(), key.text),
                    fmt::format("this key was given before, at line {}", earlier->place.line));
    }
    frame.drop_value = earlier != nullptr;
    frame.key = key.text;
    frame.key_place = key.place;
  }

  // {{ name }} without quotes is a map whose key is the map {name: null}.
  static std::string describe_bad_key(const YamlNode& key) {
    if (key.kind == YamlNode::Kind::Map && key.entries.size() == 1) {
      return fmt::format(
          "{{{{ {0} }}}} without quotes is a map to YAML; quote it: "
          "'{{{{ {0} }}}}'",
          key.entries[0].key);
    }
    return "a key must be text";
  }

  std::string_view text_;
  int source_;
  Problems& problems_;
  std::vector<Frame> frames_;
  std::vector<BadKey> bad_keys_;
  std::map<YAML::anchor_t, YamlNode> anchors_;
  std::vector<YamlNode> documents_;
  size_t nodes_ = 0;
  size_t bytes_ = 0;
};

// Bytes no YAML may hold; yaml-cpp would pass some of them on.
bool check_bytes(std::string_view text, int source, Problems& problems) {
  Place place{source, 1, 1};
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_length(text, at);
    const auto byte = static_cast<unsigned char>(text[at]);
    if (length == 0) {
      problems.add(place, "",
                   fmt::format("the byte 0x{:02x} is not UTF-8 text; save the file as "
                               "UTF-8",
                               byte));
      return false;
    }
    if ((byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F) {
      problems.add(place, "",
                   fmt::format("the control character 0x{:02x} can't be part of a YAML "
                               "file; remove it",
                               byte));
      return false;
    }
    at += length;
    place = byte == '\n' ? Place{source, place.line + 1, 1}
                         : Place{source, place.line, place.column + 1};
  }
  return true;
}

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
  for (const YamlEntry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

YamlNode* YamlNode::find(std::string_view key) {
  return const_cast<YamlNode*>(static_cast<const YamlNode*>(this)->find(key));
}

std::string join_path(std::string_view path, std::string_view key) {
  const bool simple = !key.empty() && key.size() <= 60 &&
                      key.find_first_not_of(
                          "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                          "0123456789_-") == std::string_view::npos;
  const std::string shown = simple ? std::string(key) : in_quotes(key);
  return path.empty() ? shown : fmt::format("{}.{}", path, shown);
}

std::string join_path(std::string_view path, size_t index) {
  return fmt::format("{}[{}]", path, index + 1);
}

std::optional<YamlNode> parse_yaml(std::string_view text, int source, Problems& problems) {
  auto documents = parse_yaml_documents(text, source, problems);
  if (!documents) return std::nullopt;
  if (documents->empty()) {
    YamlNode none;
    none.place = {source, 1, 1};
    return none;
  }
  if (documents->size() == 1) return std::move(documents->front());
  problems.add((*documents)[1].place, "", "a second document starts here; a file holds one");
  return std::nullopt;
}

std::optional<std::vector<YamlNode>> parse_yaml_documents(std::string_view text, int source, Problems& problems) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  if (text.size() > kYamlMaxBytes) {
    problems.add(
        {source, 0, 0}, "",
        fmt::format("{} bytes are too many, expected at most {}", text.size(), kYamlMaxBytes));
    return std::nullopt;
  }
  if (!check_bytes(text, source, problems)) return std::nullopt;
  auto place = [source](const YAML::Mark& mark) {
    return mark.is_null() ? Place{source, 0, 0} : Place{source, mark.line + 1, mark.column + 1};
  };
  TreeBuilder builder(text, source, problems);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
    builder.report_bad_keys(0);
    return builder.take_documents();
  } catch (const Stop& stop) {
    problems.add(place(stop.mark), stop.path, stop.text);
  } catch (const YAML::Exception& error) {
    builder.report_bad_keys(error.mark.line + 1);
    problems.add(place(error.mark), "", explain_yaml_mistake(text, {error.mark.line, error.mark.column}, error.msg));
  } catch (const std::exception& error) {
    problems.add({source, 0, 0}, "", fmt::format("this can't be read as YAML ({})", error.what()));
  }
  return std::nullopt;
}

}  // namespace dtrain
