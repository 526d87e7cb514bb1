// What a replica prints, made safe for a person's screen.
//
// Colours and text attributes pass; whatever else could move the cursor, clear the screen, set the
// title or ring the bell does not: a replica's output must not tear up the lines of the others.
#pragma once

#include <string>
#include <string_view>

namespace dtrain::cli {

// The colours a replica has switched on and not off again; carried from line to line.
class OpenColours {
 public:
  const std::string& codes() const { return codes_; }
  void apply(std::string_view sequence);  // one "ESC [ ... m"

 private:
  std::string codes_;
};

// Appends `text` to `out`: bytes that are not UTF-8 and control characters as \xNN, escape
// sequences dropped except colours, and those too unless `colours`.
void append_for_screen(std::string& out, std::string_view text, bool colours, OpenColours& open);

// The same without any colour, cut to `width` columns.
std::string screen_text(std::string_view text, size_t width);

// Names and reasons, of YAML and of processes: a control character becomes a blank.
std::string on_one_line(std::string_view text);

}  // namespace dtrain::cli
