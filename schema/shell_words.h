// What a POSIX shell takes a word for.
#pragma once

#include <string>
#include <string_view>

namespace dtrain {

// `text` as one word: in single quotes where it needs them.
std::string shell_quoted(std::string_view text);

// A shell that meets it as a command's first word need not run a program of that name: its own words and what it has
// built in, of POSIX and of the usual shells.
bool is_shell_word(std::string_view word);
// What it would do itself there, or take for an assignment, and not start.
bool is_shells_own(std::string_view word);

}  // namespace dtrain
