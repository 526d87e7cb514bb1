#include "cli/scroll.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace dtrain::cli {

namespace {

enum class Move { LineUp, LineDown, PageUp, PageDown, ToFirst, ToLast, Leave };

// None begins with another.
constexpr struct {
  std::string_view bytes;
  Move move;
} kKeys[] = {
    {"q", Move::Leave},         {"k", Move::LineUp},        {"j", Move::LineDown},
    {"\x1b[A", Move::LineUp},   {"\x1b[B", Move::LineDown}, {"\x1bOA", Move::LineUp},   {"\x1bOB", Move::LineDown},
    {"\x1b[5~", Move::PageUp},  {"\x1b[6~", Move::PageDown},
    {"\x1b[H", Move::ToFirst},  {"\x1b[F", Move::ToLast},   {"\x1bOH", Move::ToFirst},  {"\x1bOF", Move::ToLast},
    {"\x1b[1~", Move::ToFirst}, {"\x1b[4~", Move::ToLast},  {"\x1b[7~", Move::ToFirst}, {"\x1b[8~", Move::ToLast},
};

// Where line `number` of `text` begins; the first is 0.
size_t begin_of(size_t number, const std::string& text) {
  size_t at = 0;
  while (number-- > 0) at = text.find('\n', at) + 1;
  return at;
}

}  // namespace

bool Scroll::type(std::string_view bytes) {
  const size_t before = first_;
  sent_ += bytes;
  while (!sent_.empty()) {
    const auto key = std::ranges::find_if(kKeys, [&](const auto& each) { return sent_.starts_with(each.bytes); });
    const bool is_key = key != std::end(kKeys);
    if (!is_key && std::ranges::any_of(kKeys, [&](const auto& each) { return each.bytes.starts_with(sent_); })) break;
    sent_.erase(0, is_key ? key->bytes.size() : 1);
    if (!is_key) continue;
    switch (key->move) {
      case Move::LineUp:   first_ -= std::min<size_t>(first_, 1); break;
      case Move::LineDown: first_ += 1; break;
      case Move::PageUp:   first_ -= std::min(first_, page_); break;
      case Move::PageDown: first_ += page_; break;
      case Move::ToFirst:  first_ = 0; break;
      case Move::ToLast:   first_ = first_of_last_; break;
      case Move::Leave:    left_ = true; break;
    }
    first_ = std::min(first_, first_of_last_);
  }
  return first_ != before;
}

std::string Scroll::shown(const std::string& text, size_t head, size_t rows, std::string_view how, const Screen& screen) {
  const auto lines = static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
  if (lines <= rows || rows < 2) {
    first_ = first_of_last_ = 0;
    return text.substr(0, begin_of(std::min(lines, rows), text));
  }
  head = std::min(head, rows - 2);   // without room for both, it goes
  const size_t moving = lines - head;
  page_ = rows - 1 - head;
  first_of_last_ = moving - page_;
  first_ = std::min(first_, first_of_last_);
  const std::string part = fmt::format("lines {}-{} of {}; {}", first_ + 1, first_ + page_, moving, how);
  const size_t from = begin_of(head + first_, text);
  const size_t to = begin_of(head + first_ + page_, text);
  return text.substr(0, begin_of(head, text)) + text.substr(from, to - from) +
         paint(cut_to_width(part, screen.width - 1), Ink::Dim, screen.colours) + "\n";
}

}  // namespace dtrain::cli
