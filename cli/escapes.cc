#include "cli/escapes.h"

#include <fmt/format.h>

#include <iterator>

#include "cli/terminal.h"

namespace dtrain::cli {

namespace {

constexpr char kEscape = '\x1b';
// More than any sensible line switches on; past it the oldest are forgotten.
constexpr size_t kOpenCodesMaxBytes = 128;

bool is_plain(std::string_view text) {
  for (char c : text) {
    if ((c < 0x20 && c != '\t') || c == 0x7f) return false;  // char is signed: bytes >= 0x80 too
  }
  return true;
}

// The length of the escape sequence at the start of `text`, which begins with ESC.
size_t sequence_length(std::string_view text) {
  if (text.size() < 2) return text.size();
  if (text[1] == '[') {  // CSI: parameters, then one letter
    size_t i = 2;
    while (i < text.size() && text[i] >= 0x20 && text[i] <= 0x3f) ++i;
    return i < text.size() && text[i] >= 0x40 ? i + 1 : i;
  }
  if (text[1] == ']' || text[1] == 'P' || text[1] == '_' ||
      text[1] == '^') {  // up to BEL or ESC \.
    for (size_t i = 2; i < text.size(); ++i) {
      if (text[i] == '\a') return i + 1;
      if (text[i] == kEscape) return std::min(i + 2, text.size());
    }
    return text.size();
  }
  if (text[1] >= 0x20 && text[1] <= 0x2f) return std::min<size_t>(3, text.size());
  return 2;
}

bool is_colour(std::string_view sequence) {
  return sequence.size() >= 3 && sequence[1] == '[' && sequence.back() == 'm' &&
         sequence.substr(2, sequence.size() - 3).find_first_not_of("0123456789;:") ==
             std::string_view::npos;
}

}  // namespace

void OpenColours::apply(std::string_view sequence) {
  std::string_view parameters = sequence.substr(2, sequence.size() - 3);
  bool resets = parameters.empty() || parameters == "0" || parameters == "00" ||
                parameters.substr(0, 2) == "0;";
  if (resets || codes_.size() + sequence.size() > kOpenCodesMaxBytes) codes_.clear();
  if (parameters.find_first_not_of("0;") != std::string_view::npos) codes_ += sequence;
}

void append_for_screen(std::string& out, std::string_view text, bool colours, OpenColours& open) {
  if (is_plain(text)) {
    out += text;
    return;
  }
  while (!text.empty()) {
    char c = text.front();
    if (c == kEscape) {
      std::string_view sequence = text.substr(0, sequence_length(text));
      if (colours && is_colour(sequence)) {
        open.apply(sequence);
        out += sequence;
      }
      text.remove_prefix(sequence.size());
      continue;
    }
    Glyph glyph = glyph_at(text);
    // U+0080 to U+009F are control characters too, and some terminals obey them.
    bool control = glyph.bytes == 1 ? (c < 0x20 && c != '\t') || c == 0x7f
                                    : glyph.bytes == 2 && text.substr(0, 2) < "\xc2\xa0";
    if (!glyph.valid || control) {
      for (char byte : text.substr(0, glyph.bytes)) {
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(byte));
      }
    } else {
      out += text.substr(0, glyph.bytes);
    }
    text.remove_prefix(glyph.bytes);
  }
}

std::string screen_text(std::string_view text, size_t width) {
  std::string shown;
  OpenColours none;
  append_for_screen(shown, text, false, none);
  // A tab's width depends on where it stands; a cut line needs widths that are sure.
  for (char& c : shown) {
    if (c == '\t') c = ' ';
  }
  return width == 0 ? shown : cut_to_width(shown, width);
}

std::string on_one_line(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return line;
}

}  // namespace dtrain::cli
