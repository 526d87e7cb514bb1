// One line of a .gitignore file, and what it matches.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

struct IgnorePattern {
  std::string text;             // the line as written
  std::string glob;             // without '!', without the slashes at its ends; escapes kept
  int line = 0;                 // in its file, from 1
  bool negated = false;         // '!': what it matches is in again
  bool directory_only = false;  // ended in '/'
  bool whole_path = false;      // has a '/': matches the path from its file's directory on

  enum class Shape { Literal, Suffix, Glob };
  Shape shape = Shape::Glob;  // how much work matching is: most patterns are the first two
  std::string literal;        // for Literal and Suffix, escapes removed

  // `path` is relative to the directory of the pattern's file, `name` its last part.
  bool matches(std::string_view path, std::string_view name, bool is_directory) const;
};

// Nothing for an empty line or a comment. `line` comes without its newline.
std::optional<IgnorePattern> parse_ignore_line(std::string_view line, int number);

// gitignore's globbing: '*' and '?' stop at '/', '**' as a whole part matches any number of parts,
// [a-z], [!a], [[:alpha:]], and '\' takes the next byte as it is. Needs time in the order of the
// product of both sizes at most, however many stars there are.
bool glob_matches(std::string_view glob, std::string_view text);

}  // namespace dtrain
