#include "schema/shell_words.h"

#include <algorithm>
#include <array>

namespace dtrain {

namespace {

constexpr std::array<std::string_view, 79> kShellWords = {
    "!", ".", ":", "[", "[[", "alias", "bg", "break", "builtin", "caller", "case", "cd", "chdir", "command", "compgen",
    "complete", "compopt", "continue", "coproc", "declare", "dirs", "disown", "do", "done", "echo", "elif", "else",
    "enable", "esac", "eval", "exec", "exit", "export", "false", "fc", "fg", "fi", "for", "function", "getopts", "hash",
    "if", "in", "jobs", "kill", "let", "local", "logout", "mapfile", "popd", "printf", "pushd", "pwd", "read",
    "readarray", "readonly", "return", "select", "set", "shift", "shopt", "source", "test", "then", "time", "times",
    "trap", "true", "type", "typeset", "ulimit", "umask", "unalias", "unset", "until", "wait", "while", "{", "}"};

}  // namespace

std::string shell_quoted(std::string_view text) {
  constexpr std::string_view kHarmless = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=:,@%+";
  if (!text.empty() && text.find_first_not_of(kHarmless) == std::string_view::npos) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

bool is_shells_own(std::string_view word) { return is_shell_word(word) || word.find('=') != std::string_view::npos; }

bool is_shell_word(std::string_view word) { return std::find(kShellWords.begin(), kShellWords.end(), word) != kShellWords.end(); }

}  // namespace dtrain
