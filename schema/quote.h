// Text from outside, made fit for one line of a message.
#pragma once

#include <string>
#include <string_view>

namespace dtrain {

// 'text' in single quotes: control characters and bytes that are not UTF-8 as \xNN, cut with "..."
// after about 60 characters. What a message repeats must neither move the cursor nor fill the
// screen.
std::string in_quotes(std::string_view text);

// Length in bytes of the UTF-8 character that starts at text[at]; 0 when the bytes there are none
// (overlong, surrogate, past U+10FFFF, torn).
size_t utf8_length(std::string_view text, size_t at);

bool is_utf8(std::string_view text);

// `text` with each byte that is not UTF-8 as \xNN. What goes into a string field of a message needs
// it: for one such byte the reader refuses the whole message.
std::string as_utf8(std::string_view text);

}  // namespace dtrain
