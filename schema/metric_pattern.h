// The regular expression of a metric: where in a line of output its value stands.
//
// RE2 and no other: its time is linear in the line, whatever the pattern and whatever a replica
// prints. The only door to it. Plain value; any thread.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "schema/result.h"

namespace re2 {
class RE2;
}

namespace dtrain {

// Of one experiment.
inline constexpr size_t kMetricsMax = 64;

class MetricPattern {
 public:
  // InvalidArgument with what is wrong with it: syntax, too large, or more than one group.
  static Result<MetricPattern> compile(std::string_view text);

  MetricPattern(MetricPattern&&) noexcept;
  MetricPattern& operator=(MetricPattern&&) noexcept;
  ~MetricPattern();

  // The next value in `line` from `at` on, and `at` moved behind the match. Nothing: there is no
  // other. A group that took no part in the match is an empty value.
  std::optional<std::string_view> find(std::string_view line, size_t& at) const;

 private:
  explicit MetricPattern(std::unique_ptr<re2::RE2> compiled);

  std::unique_ptr<re2::RE2> compiled_;
};

}  // namespace dtrain
