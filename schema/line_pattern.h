// A regular expression for lines of output: whether one is of that kind, and where in it a value stands.
//
// RE2 and no other: its time is linear in the line, whatever the pattern and whatever a replica
// prints. The only door to it. Plain value; any thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"

namespace re2 {
class RE2;
}

namespace dtrain {

class LinePattern {
 public:
  // InvalidArgument with what is wrong with it: its syntax, or too large.
  static Result<LinePattern> compile(std::string_view text);
  // Which any of these is in, as far as they can be used together.
  static Result<LinePattern> compile_any(const std::vector<std::string>& texts);

  LinePattern(LinePattern&&) noexcept;
  LinePattern& operator=(LinePattern&&) noexcept;
  ~LinePattern();

  int groups() const;
  // Where in `line` it begins; nothing: it is not in there.
  std::optional<size_t> place_in(std::string_view line) const;
  bool is_in(std::string_view line) const;
  // Of one with a group at the most: the next value in `line` from `at` on, and `at` moved behind the match. Nothing: there is no
  // other. A group that took no part in the match is an empty value.
  std::optional<std::string_view> find(std::string_view line, size_t& at) const;

 private:
  explicit LinePattern(std::unique_ptr<re2::RE2> compiled);

  std::unique_ptr<re2::RE2> compiled_;
};

}  // namespace dtrain
