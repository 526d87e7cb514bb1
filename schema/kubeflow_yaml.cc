#include "schema/kubeflow_yaml.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "schema/quote.h"
#include "schema/spec.h"

namespace dtrain {

namespace {

bool is_latin(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_yaml_word(std::string_view text) {
  constexpr std::array<std::string_view, 11> kWords = {"null", "true", "false", "yes", "no", "on", "off", "y", "n", "inf", "nan"};
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  return std::ranges::any_of(kWords, [&](std::string_view word) { return std::ranges::equal(text, word, same); });
}

// What begins with a letter or a slash is no number. Options of a command may stand bare, and paths from here.
bool is_bare(std::string_view text) {
  constexpr std::string_view kOthers = "_-./@%+=,:";
  const bool is_option = text.starts_with("-"), is_path = text.starts_with("./") || text.starts_with("../");
  const std::string_view word = is_option || is_path ? text.substr(std::min(text.find_first_not_of("-."), text.size())) : text;
  return !word.empty() && (is_latin(word.front()) || word.front() == '/') && word.back() != ':' && !is_yaml_word(word) &&
         std::ranges::all_of(text, [&](char c) { return is_latin(c) || (c >= '0' && c <= '9') || kOthers.find(c) != kOthers.npos; });
}

// Whether it can be written without escapes.
bool is_clear(std::string_view text) {
  // What is a line's end to some readers, and a mark at a file's begin.
  for (const std::string_view other : {"\xC2\x85", "\xE2\x80\xA8", "\xE2\x80\xA9", "\xEF\xBB\xBF"}) {
    if (text.find(other) != text.npos) return false;
  }
  return is_utf8(text) && std::ranges::all_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 ? byte != 0x7F : c == '\n' || c == '\t';
  });
}

// Whether a block can hold the lines as they are.
bool is_block(std::string_view text) {
  if (text.find('\n') == text.npos || text.ends_with("\n\n") || text.find_first_not_of('\n') == text.npos) return false;
  if (text.front() == ' ' || text.front() == '\t' || text.front() == '\n') return false;
  return is_clear(text);
}

std::string in_readable_quotes(const std::string& text) {
  const bool has_double = text.find_first_of("\"\\") != text.npos, is_other = text.find_first_of("'\n\t") != text.npos;
  return has_double && !is_other && is_clear(text) ? "'" + text + "'" : yaml_quoted(text);
}

std::string scalar(const YamlNode& node, int depth) {
  if (node.plain || is_bare(node.text)) return node.text;
  if (!is_block(node.text)) return in_readable_quotes(node.text);
  std::string_view left = node.text;
  std::string out = left.ends_with('\n') ? "|" : "|-";
  while (!left.empty()) {
    const size_t end = std::min(left.find('\n'), left.size());
    out += end == 0 ? "\n" : fmt::format("\n{:{}}{}", "", depth * 2, left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return out;
}

void emit_value(const YamlNode& node, int depth, std::string& out);

// The first entry of what is an item of a list stands beside its dash.
void emit_entries(const YamlNode& map, int depth, bool beside_dash, std::string& out) {
  for (const YamlEntry& entry : map.entries) {
    if (!beside_dash) out += std::string(static_cast<size_t>(depth) * 2, ' ');
    beside_dash = false;
    out += (is_bare(entry.key) ? entry.key : yaml_quoted(entry.key)) + ":";
    emit_value(entry.value, depth + 1, out);
  }
}

void emit_value(const YamlNode& node, int depth, std::string& out) {
  const bool is_map = node.kind == YamlNode::Kind::Map, is_list = node.kind == YamlNode::Kind::List;
  if (is_map && !node.entries.empty()) {
    out += "\n";
    emit_entries(node, depth, false, out);
  } else if (is_list && !node.items.empty()) {
    out += "\n";
    for (const YamlNode& item : node.items) {
      out += std::string(static_cast<size_t>(depth) * 2, ' ') + "-";
      if (item.kind != YamlNode::Kind::Map) {
        emit_value(item, depth + 1, out);
      } else {
        out += " ";
        emit_entries(item, depth + 1, true, out);
      }
    }
  } else {
    out += fmt::format(" {}\n", is_map ? "{}" : is_list ? "[]" : scalar(node, depth));
  }
}

}  // namespace

YamlNode yaml_map() {
  YamlNode node;
  node.kind = YamlNode::Kind::Map;
  return node;
}

YamlNode yaml_list(const std::vector<std::string>& texts) {
  YamlNode node;
  node.kind = YamlNode::Kind::List;
  for (const std::string& text : texts) node.items.push_back(yaml_text(text));
  return node;
}

YamlNode yaml_text(std::string text) {
  YamlNode node;
  node.kind = YamlNode::Kind::Scalar;
  node.text = std::move(text);
  return node;
}

YamlNode yaml_bare(std::string text) {
  YamlNode node = yaml_text(std::move(text));
  node.plain = true;
  return node;
}

YamlNode yaml_bare(int64_t number) { return yaml_bare(fmt::format("{}", number)); }

void yaml_put(YamlNode& map, std::string key, YamlNode value) { map.entries.push_back({std::move(key), {}, std::move(value)}); }

std::string manifest_text(const YamlNode& root) {
  std::string out;
  emit_entries(root, 0, false, out);
  return out;
}

}  // namespace dtrain
