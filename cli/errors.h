// How a command that failed says so.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"

namespace dtrain::cli {

// 2 for what was refused: it is wrong, names nothing that is there, or can't be done here and now
// (no room, no permission). 1 for what broke on the way, whose outcome may be unknown.
int exit_code_of(const Error& error);

// "dtrain: message" and, when there is one, "  hint: ...", whose commands are named as this one was called (cli/remote.h).
// Every line of a message of several lines is kept, and goes on below itself where it is wider than `width`; control characters are shown as \xNN.
std::string error_text(const Error& error, size_t width = 0);
// {"error":{"code":"not found","message":...,"hint":...}}
std::string error_json(const Error& error);
// "not found"
std::string_view word_of(Code code);

// To stderr.
void print_error(const Error& error, bool json);
// "Warning: ..." each, to stderr; nothing of empty ones.
void warn(const std::vector<std::string>& warnings);
void tell(const std::vector<std::string>& notes);  // what needs no mending
// To stderr: `text`, and a line break.
void say(const std::string& text);

}  // namespace dtrain::cli
