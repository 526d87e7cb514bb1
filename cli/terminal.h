// What the far end of a file descriptor can show: a person's screen or a pipe.
//
// Looked up once by a command and handed down as a value, so that everything that draws is a pure
// function of its input and can be tested without a terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dtrain::cli {

struct Screen {
  bool is_terminal = false;
  bool colours = false;  // a terminal that has them, and NO_COLOR is not set
  size_t width = 0;      // columns; 0: unbounded, as in a pipe
  size_t height = 0;     // rows; 0: unbounded
  bool dumb = false;     // a terminal whose cursor does not move
  bool ascii = false;    // whoever reads it said, by a locale, that they have no other letters
};

// Whether the locale of LC_ALL, LC_CTYPE and LANG, of which the first that is not empty counts, has no UTF-8. Where
// nobody says anything, as in a container, it is taken for UTF-8.
bool is_ascii_locale(std::string_view lc_all, std::string_view lc_ctype, std::string_view lang);
// With ASCII for the symbols that we draw, where the screen has nothing else. As wide as before.
std::string as_drawn(std::string text, const Screen& screen);

// Asks the kernel; TERM=dumb and a non-empty NO_COLOR turn colours off. A terminal that does not
// tell its size counts as 80 x 24.
Screen screen_of(int fd);

enum class Ink { Plain, Bold, Dim, Red, Green, Yellow, Blue, Magenta, Cyan };

// The escape sequence that starts an ink ("" for Plain), and the one that ends any.
std::string_view ink_code(Ink ink);
inline constexpr std::string_view kInkEnd = "\x1b[0m";

// `text` in an ink when `colours`, else unchanged.
std::string paint(std::string_view text, Ink ink, bool colours);

// The ink a state word is shown in: yellow while it comes up, green while it runs, red when it
// failed.
Ink ink_of_state(std::string_view state);

// Columns that UTF-8 text takes on a screen: wide characters two, combining ones none, bytes that
// are not UTF-8 one each. Text must hold no escape sequences.
size_t display_width(std::string_view text);

// The longest prefix of `text` that takes at most `width` columns; with "..." at its end when
// something was cut and there is room for it.
std::string cut_to_width(std::string_view text, size_t width);

// `text` in lines of at most `width` columns (0: unbounded), broken at blanks. The first begins at column `indent`, where
// the others get that many blanks. A longer word stays whole.
std::string wrapped(std::string_view text, size_t width, size_t indent);

// Each line of `text` so, the first from column `indent` on, where the others begin. What goes on in a new line does so
// below where its own began. A line that is there to be typed, as it is a command of dtrain's, stays whole.
std::string folded(std::string_view text, size_t width, size_t indent = 0);

// One character at the start of `text`: its length in bytes and its columns. `valid` is false for a
// byte that is not UTF-8 (length 1, one column). Text must not be empty.
struct Glyph {
  size_t bytes = 1;
  size_t columns = 1;
  bool valid = true;
};
Glyph glyph_at(std::string_view text);

}  // namespace dtrain::cli
