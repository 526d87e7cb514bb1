#include "cli/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/escapes.h"

namespace dtrain::cli {

void Fields::add(std::string_view label, std::string value) {
  if (value.empty()) return;
  lines_.push_back({fmt::format("{}:", label), std::move(value), false});
}

void Fields::add_line(std::string_view label, std::string value) {
  if (value.empty()) return;
  lines_.push_back({fmt::format("{}:", label), on_one_line(value), true});
}

std::string Fields::text(const Screen& screen) const {
  size_t width = 0;
  for (const Line& line : lines_) width = std::max(width, line.label.size());
  const size_t room = screen.width > width + 1 ? screen.width - width - 1 : 1;
  std::string out;
  for (const auto& [label, value, may_cut] : lines_) {
    const std::string shown = may_cut && screen.width > 0 ? cut_to_width(value, room) : value;
    std::string_view rest = shown;
    std::string_view left = label;
    while (true) {
      const size_t end = rest.find('\n');
      out += fmt::format("{:<{}} {}\n", left, width, folded(on_one_line(rest.substr(0, end)), screen.width, width + 1));
      if (end == std::string_view::npos) break;
      rest.remove_prefix(end + 1);
      left = "";
    }
  }
  return as_drawn(std::move(out), screen);
}

}  // namespace dtrain::cli
