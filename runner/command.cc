#include "runner/command.h"

#include "schema/shell_words.h"

namespace dtrain::runner {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace

bool is_plain_command(std::string_view line) {
  line = trimmed(line);
  if (line.empty()) return false;
  const std::string_view word = line.substr(0, line.find_first_of(" \t<>"));
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

std::vector<std::string> shell_command(const std::vector<std::string>& run) {
  std::string script;
  for (size_t i = 0; i + 1 < run.size(); ++i) {
    // eval keeps a line's syntax error to itself and its variables for the next line. Before `||` it
    // would run as if there were no `set -e` in it.
    script += "eval " + shell_quoted(run[i]) + "\ncase $? in 0) ;; *) exit $? ;; esac\n";
  }
  if (!run.empty()) {
    const std::string_view last = trimmed(run.back());
    if (is_plain_command(last)) script += "exec ";
    script += last;
  }
  return {"/bin/sh", "-c", std::move(script)};
}

}  // namespace dtrain::runner
