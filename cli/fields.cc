#include "cli/fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace dtrain::cli {

namespace {

// Values come from YAML and from processes: nothing in them may move the cursor.
std::string calm(std::string_view text) {
  std::string line(text);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return line;
}

}  // namespace

void Fields::add(std::string_view label, std::string value) {
  if (value.empty()) return;
  lines_.emplace_back(fmt::format("{}:", label), std::move(value));
}

std::string Fields::text() const {
  size_t width = 0;
  for (const auto& line : lines_) width = std::max(width, line.first.size());
  std::string out;
  for (const auto& [label, value] : lines_) {
    std::string_view rest = value;
    std::string_view left = label;
    while (true) {
      const size_t end = rest.find('\n');
      out += fmt::format("{:<{}} {}\n", left, width, calm(rest.substr(0, end)));
      if (end == std::string_view::npos) break;
      rest.remove_prefix(end + 1);
      left = "";
    }
  }
  return out;
}

}  // namespace dtrain::cli
