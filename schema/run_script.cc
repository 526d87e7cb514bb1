#include "schema/run_script.h"

#include <algorithm>
#include <cctype>

#include "schema/shell_words.h"

namespace dtrain {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

// Of a line that is trimmed.
std::string_view first_word(std::string_view line) { return line.substr(0, line.find_first_of(" \t<>")); }

bool is_of_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("_-./").find(c) != std::string_view::npos; }

// Whether the line may make the word a function or an alias: `word() {`, `function word`, `alias word=`.
bool may_define(std::string_view line, std::string_view word) {
  for (size_t at = line.find(word); at != std::string_view::npos; at = line.find(word, at + 1)) {
    const std::string_view before = line.substr(0, at), after = line.substr(at + word.size());
    if ((!before.empty() && is_of_word(before.back())) || (!after.empty() && is_of_word(after.front()))) continue;
    const size_t next = after.find_first_not_of(" \t");
    if (next != std::string_view::npos && (after[next] == '(' || after.front() == '=')) return true;
    if (trimmed(before).ends_with("function")) return true;
  }
  return false;
}

}  // namespace

bool is_plain_command(std::string_view line) {
  line = trimmed(line);
  if (line.empty()) return false;
  const std::string_view word = first_word(line);
  if (word.empty() || word.find_first_of("=$\"'\\`{}*?~") != std::string_view::npos) return false;
  if (is_shell_word(word)) return false;   // `exec` would miss it, or run something else of the same name
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\\' && quote != '\'') {
      ++i;
    } else if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '&' && i > 0 && (line[i - 1] == '>' || line[i - 1] == '<')) {
      continue;  // 2>&1 joins streams, not commands
    } else if (c == ';' || c == '&' || c == '|' || c == '(' || c == ')' || c == '\n' || c == '`') {
      return false;
    } else if (c == '<' && i + 1 < line.size() && line[i + 1] == '<') {
      return false;
    }
  }
  return quote == 0;
}

std::string run_script(const std::vector<std::string>& run) {
  if (run.empty()) return "";
  std::string script;
  const std::string_view last = trimmed(run.back());
  bool is_program = is_plain_command(last);
  for (size_t i = 0; i + 1 < run.size(); ++i) {
    is_program = is_program && !may_define(run[i], first_word(last));
    // eval keeps a line's syntax error to itself and its variables for the next line. Before `||` it
    // would run as if there were no `set -e` in it.
    script += "eval " + shell_quoted(run[i]) + "\ncase $? in 0) ;; *) exit $? ;; esac\n";
  }
  return script + (is_program ? "exec " : "") + std::string(last);
}

}  // namespace dtrain
