#include "runner/command.h"

#include <algorithm>
#include <array>

namespace dtrain::runner {
namespace {

// What a shell does by itself: `exec` would miss it, or run something else of the same name.
constexpr std::array<std::string_view, 41> kShellWords = {
    "!",        ".",        ":",      "[",     "[[",     "alias", "break",  "case",     "cd",
    "command",  "continue", "echo",   "eval",  "exec",   "exit",  "export", "false",    "for",
    "function", "getopts",  "if",     "local", "printf", "pwd",   "read",   "readonly", "return",
    "set",      "shift",    "source", "test",  "time",   "times", "trap",   "true",     "type",
    "ulimit",   "umask",    "unset",  "until", "while"};

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace

std::string single_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

bool is_plain_command(std::string_view line) {
  line = trimmed(line);
  if (line.empty()) return false;
  const std::string_view word = line.substr(0, line.find_first_of(" \t<>"));
  if (word.empty() || word.find_first_of("=$\"'\\`{}*?~") != std::string_view::npos) return false;
  if (std::find(kShellWords.begin(), kShellWords.end(), word) != kShellWords.end()) return false;
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

std::vector<std::string> shell_command(const std::vector<std::string>& run) {
  std::string script;
  for (size_t i = 0; i + 1 < run.size(); ++i) {
    // eval keeps a line's syntax error to itself and its variables for the next line. Before `||` it
    // would run as if there were no `set -e` in it.
    script += "eval " + single_quoted(run[i]) + "\ncase $? in 0) ;; *) exit $? ;; esac\n";
  }
  if (!run.empty()) {
    const std::string_view last = trimmed(run.back());
    if (is_plain_command(last)) script += "exec ";
    script += last;
  }
  return {"/bin/sh", "-c", std::move(script)};
}

}  // namespace dtrain::runner
