#include "schema/yaml_mistake.h"

#include <fmt/format.h>

namespace dtrain {

namespace {

std::string_view line_at(std::string_view text, int line) {
  for (; line > 0; --line) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return {};
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

// Wrong on any line, and seen by yaml-cpp at the latest one line below.
std::string mistake_of_line(std::string_view content, int number) {
  const size_t start = content.find_first_not_of(' ');
  if (start != std::string_view::npos && content[start] == '\t') {
    return fmt::format("line {} is indented with a tab: use spaces", number);
  }
  if (content.find("{{") == std::string_view::npos) return "";
  return fmt::format("line {} holds {{{{, put quotes around the whole value", number);
}

std::string mistake_of_rule(std::string_view content, const YamlSpot& spot, std::string_view rule) {
  const size_t column = static_cast<size_t>(spot.column);
  if (rule == "illegal map value") {
    // Without a key before it on its line, what is there was taken for more of the value above.
    const bool is_in_value = content.substr(0, column).find(": ") != std::string_view::npos;
    if (is_in_value || spot.line == 0) return "a value that holds ': ' needs quotes";
    return fmt::format("line {} is indented too far, or what is above it lacks its ': '", spot.line + 1);
  }
  if (rule == "end of map not found" || rule == "end of sequence not found") {
    if (content.find_first_not_of(' ') != column) return "the value has ended before that: put quotes around all of it";
    return fmt::format("line {} is indented like none of the lines that it could belong with", spot.line + 1);
  }
  if (rule == "end of map flow not found" || rule == "end of sequence flow not found") {
    return "a bracket is not closed, or a value inside needs quotes";
  }
  if (rule == "unknown token" && column < content.size()) {
    return fmt::format("a value that begins with {} needs quotes", content[column]);
  }
  if (rule == "illegal block entry") return "a list begins on a line of its own";
  if (rule.starts_with("unknown escape character")) return "in double quotes \\ is written \\\\, in single ones as it is";
  return "";
}

}  // namespace

std::string explain_yaml_mistake(std::string_view text, const YamlSpot& spot, std::string_view rule) {
  std::string mistake;
  for (int line = spot.line; line >= 0 && line >= spot.line - 1 && mistake.empty(); --line) {
    mistake = mistake_of_line(line_at(text, line), line + 1);
  }
  if (mistake.empty()) mistake = mistake_of_rule(line_at(text, spot.line), spot, rule);
  return fmt::format("this is not valid YAML ({}){}{}", rule, mistake.empty() ? "" : "; ", mistake);
}

}  // namespace dtrain
