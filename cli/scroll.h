// Which lines of a text that is longer than its screen are shown, and the keys that move them. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "cli/terminal.h"

namespace dtrain::cli {

class Scroll {
 public:
  // What a terminal sent: of a key perhaps its first bytes alone. Keys move by what was shown last. Whether it moved.
  bool type(std::string_view bytes);
  bool is_left() const { return left_; }   // q was typed

  // The lines of `text` that `rows` have room for: the first `head`, which stay, and a part of the others. Where that
  // is not all, the last row says which part it is, and `how` to see the rest.
  std::string shown(const std::string& text, size_t head, size_t rows, std::string_view how, const Screen& screen);

 private:
  std::string sent_;          // the first bytes of a key
  size_t first_ = 0;          // which of the lines that move is shown first
  size_t first_of_last_ = 0;  // which is with the last part
  size_t page_ = 0;           // lines of a part
  bool left_ = false;
};

}  // namespace dtrain::cli
