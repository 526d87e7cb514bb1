#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "schema/quote.h"

namespace dtrain::cli {

namespace {

struct Range {
  uint32_t first;
  uint32_t last;
};

// Characters that sit on the one before them.
constexpr Range kCombining[] = {{0x0300, 0x036f}, {0x0483, 0x0489}, {0x0591, 0x05bd},
                                {0x0610, 0x061a}, {0x064b, 0x065f}, {0x1ab0, 0x1aff},
                                {0x1dc0, 0x1dff}, {0x200b, 0x200f}, {0x20d0, 0x20ff},
                                {0xfe00, 0xfe0f}, {0xfe20, 0xfe2f}};
// East Asian scripts and pictures, which take two columns: East_Asian_Width W and F of Unicode 15.
constexpr Range kWide[] = {{0x1100, 0x115f},   {0x231a, 0x231b},   {0x2329, 0x232a},
                           {0x23e9, 0x23ec},   {0x23f0, 0x23f0},   {0x23f3, 0x23f3},
                           {0x25fd, 0x25fe},   {0x2614, 0x2615},   {0x2648, 0x2653},
                           {0x267f, 0x267f},   {0x2693, 0x2693},   {0x26a1, 0x26a1},
                           {0x26aa, 0x26ab},   {0x26bd, 0x26be},   {0x26c4, 0x26c5},
                           {0x26ce, 0x26ce},   {0x26d4, 0x26d4},   {0x26ea, 0x26ea},
                           {0x26f2, 0x26f3},   {0x26f5, 0x26f5},   {0x26fa, 0x26fa},
                           {0x26fd, 0x26fd},   {0x2705, 0x2705},   {0x270a, 0x270b},
                           {0x2728, 0x2728},   {0x274c, 0x274c},   {0x274e, 0x274e},
                           {0x2753, 0x2755},   {0x2757, 0x2757},   {0x2795, 0x2797},
                           {0x27b0, 0x27b0},   {0x27bf, 0x27bf},   {0x2b1b, 0x2b1c},
                           {0x2b50, 0x2b50},   {0x2b55, 0x2b55},
                           {0x2e80, 0x303e},   {0x3041, 0x33ff},
                           {0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xa000, 0xa4cf},
                           {0xac00, 0xd7a3},   {0xf900, 0xfaff},   {0xfe30, 0xfe6f},
                           {0xff00, 0xff60},   {0xffe0, 0xffe6},   {0x1f300, 0x1f64f},
                           {0x1f680, 0x1f6ff}, {0x1f7e0, 0x1f7eb}, {0x1f7f0, 0x1f7f0},
                           {0x1f900, 0x1f9ff}, {0x1fa70, 0x1faff}, {0x20000, 0x3fffd}};

template <size_t N>
bool within(const Range (&ranges)[N], uint32_t point) {
  for (const Range& range : ranges) {
    if (point < range.first) return false;
    if (point <= range.last) return true;
  }
  return false;
}

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

std::string_view value_of_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool is_ascii_locale(std::string_view lc_all, std::string_view lc_ctype, std::string_view lang) {
  const std::string_view said = !lc_all.empty() ? lc_all : !lc_ctype.empty() ? lc_ctype : lang;
  std::string letters;
  for (const char c : said) {
    if (c != '-') letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return !said.empty() && letters.find("utf8") == letters.npos;
}

std::string as_drawn(std::string text, const Screen& screen) {
  constexpr std::pair<std::string_view, char> kSymbols[] = {{"●", '*'}, {"○", 'o'}, {"✓", '+'}, {"✗", 'x'}, {"╰", '`'}, {"├", '|'}, {"─", '-'},
                                                            {"▁", '.'}, {"▂", ':'}, {"▃", '-'}, {"▄", '='}, {"▅", '+'}, {"▆", '*'}, {"▇", '#'}, {"█", '@'}};
  if (!screen.ascii) return text;
  for (const auto& [symbol, letter] : kSymbols) {
    for (size_t at = text.find(symbol); at != text.npos; at = text.find(symbol, at + 1)) text.replace(at, symbol.size(), 1, letter);
  }
  return text;
}

Screen screen_of(int fd) {
  Screen screen;
  screen.ascii = is_ascii_locale(value_of_variable("LC_ALL"), value_of_variable("LC_CTYPE"), value_of_variable("LANG"));
  screen.is_terminal = isatty(fd) == 1;
  if (!screen.is_terminal) return screen;
  const char* term = std::getenv("TERM");
  bool dumb = term == nullptr || std::string_view(term).empty() || std::string_view(term) == "dumb";
  screen.dumb = dumb;
  screen.colours = !dumb && !is_set("NO_COLOR");
  winsize size{};
  bool known = ioctl(fd, TIOCGWINSZ, &size) == 0;
  screen.width = known && size.ws_col > 0 ? size.ws_col : 80;
  screen.height = known && size.ws_row > 0 ? size.ws_row : 24;
  return screen;
}

std::string_view ink_code(Ink ink) {
  switch (ink) {
    case Ink::Plain:
      return "";
    case Ink::Bold:
      return "\x1b[1m";
    case Ink::Dim:
      return "\x1b[2m";
    case Ink::Red:
      return "\x1b[31m";
    case Ink::Green:
      return "\x1b[32m";
    case Ink::Yellow:
      return "\x1b[33m";
    case Ink::Blue:
      return "\x1b[34m";
    case Ink::Magenta:
      return "\x1b[35m";
    case Ink::Cyan:
      return "\x1b[36m";
  }
  return "";
}

std::string paint(std::string_view text, Ink ink, bool colours) {
  if (!colours || ink == Ink::Plain) return std::string(text);
  std::string painted(ink_code(ink));
  painted += text;
  painted += kInkEnd;
  return painted;
}

Ink ink_of_state(std::string_view state) {
  if (state == "PENDING" || state == "BUILDING" || state == "STARTING" || state == "RESTARTING" ||
      state == "STOPPING" || state == "SUSPENDED") {
    return Ink::Yellow;
  }
  if (state == "RUNNING" || state == "FINISHED") return Ink::Green;
  if (state == "FAILED" || state == "KILLED" || state == "LOST") return Ink::Red;
  return Ink::Plain;
}

Glyph glyph_at(std::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return {};
  size_t length = utf8_length(text, 0);
  if (length == 0) return {1, 1, false};
  uint32_t point = byte(0) & (0x7fu >> length);
  for (size_t i = 1; i < length; ++i) point = (point << 6) | (byte(i) & 0x3fu);
  size_t columns = within(kCombining, point) ? 0 : within(kWide, point) ? 2 : 1;
  return {length, columns, true};
}

size_t display_width(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    Glyph glyph = glyph_at(text);
    columns += glyph.columns;
    text.remove_prefix(glyph.bytes);
  }
  return columns;
}

std::string wrapped(std::string_view text, size_t width, size_t indent) {
  if (width == 0) return std::string(text);
  std::string out;
  size_t column = indent;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    const size_t columns = display_width(word);
    if (column > indent && column + 1 + columns > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (begin > 0) {
      out += ' ';
      ++column;
    }
    out += word;
    column += columns;
    begin = end + 1;
  }
  return out;
}

std::string folded(std::string_view text, size_t width, size_t indent) {
  std::string out;
  while (true) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const size_t blanks = std::min(line.find_first_not_of(' '), line.size());
    const bool is_typed = line.starts_with("dtrain ");
    out += line.substr(0, blanks);
    out += is_typed ? std::string(line) : wrapped(line.substr(blanks), width, indent + blanks);
    if (end == text.size()) return out;
    out += '\n';
    if (end + 1 < text.size()) out += std::string(indent, ' ');
    text.remove_prefix(end + 1);
  }
}

std::string cut_to_width(std::string_view text, size_t width) {
  if (display_width(text) <= width) return std::string(text);
  constexpr std::string_view kDots = "...";
  size_t room = width > kDots.size() ? width - kDots.size() : width;
  size_t bytes = 0;
  size_t columns = 0;
  while (bytes < text.size()) {
    Glyph glyph = glyph_at(text.substr(bytes));
    if (columns + glyph.columns > room) break;
    columns += glyph.columns;
    bytes += glyph.bytes;
  }
  std::string cut(text.substr(0, bytes));
  if (width > kDots.size()) cut += kDots;
  return cut;
}

}  // namespace dtrain::cli
