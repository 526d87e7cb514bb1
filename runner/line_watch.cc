#include "runner/line_watch.h"

#include <algorithm>

#include "schema/spec.h"

namespace dtrain::runner {

namespace {

constexpr size_t kShownBytes = 200;

// With what fits in it, also where a line is long.
std::string shown_part(std::string_view line, size_t place) {
  constexpr size_t kBeginBytes = 40, kBeforeBytes = 20;
  if (place <= kBeginBytes) return std::string(line.substr(0, kShownBytes));
  return "..." + std::string(line.substr(place - kBeforeBytes, kShownBytes - 3));
}

}  // namespace

LineWatch::LineWatch(const std::vector<WatchedLine>& wanted) {
  for (const WatchedLine& one : wanted) {
    if (auto pattern = LinePattern::compile(one.pattern); pattern.ok()) wanted_.push_back({one, std::move(*pattern)});
  }
  look_for_any();
}

// Mostly none of them is there: that takes one look at a line.
void LineWatch::look_for_any() {
  any_.reset();
  if (wanted_.size() < 2) return;
  std::vector<std::string> patterns;
  for (const Wanted& one : wanted_) patterns.push_back(one.what.pattern);
  if (auto any = LinePattern::compile_any(patterns); any.ok()) any_ = std::move(*any);
}

void LineWatch::take(std::string_view output) {
  while (!wanted_.empty() && !output.empty()) {
    const size_t end = output.find_first_of("\n\r");
    const std::string_view part = output.substr(0, end);
    const bool whole = end != std::string_view::npos;
    if (whole && tail_.empty()) {
      take_line(part);
    } else {
      tail_.append(part.substr(0, kPrintedLineMaxBytes - tail_.size()));
      if (whole) end_line();
    }
    output.remove_prefix(whole ? end + 1 : output.size());
  }
}

void LineWatch::finish() { end_line(); }

void LineWatch::end_line() {
  take_line(tail_);
  tail_.clear();
}

void LineWatch::take_line(std::string_view line) {
  line = line.substr(0, kPrintedLineMaxBytes);
  if (line.empty() || (any_ && !any_->is_in(line))) return;
  const size_t found = std::erase_if(wanted_, [&](const Wanted& one) {
    const auto place = one.pattern.place_in(line);
    if (!place) return false;
    found_.push_back({one.what.rule, shown_part(line, *place)});
    if (one.what.at_once && ending_ == kNone) ending_ = found_.size() - 1;
    return true;
  });
  if (found > 0) look_for_any();
}

}  // namespace dtrain::runner
