#include "runner/line_watch.h"

#include <algorithm>

#include "schema/spec.h"

namespace dtrain::runner {

namespace {

constexpr size_t kShownBytes = 200;

}  // namespace

LineWatch::LineWatch(const std::vector<WatchedLine>& wanted) {
  for (const WatchedLine& one : wanted) {
    if (auto pattern = LinePattern::compile(one.pattern); pattern.ok()) wanted_.push_back({one.rule, one.at_once, std::move(*pattern)});
  }
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
  if (line.empty()) return;
  std::erase_if(wanted_, [&](const Wanted& one) {
    if (!one.pattern.is_in(line)) return false;
    found_.push_back({one.rule, std::string(line.substr(0, kShownBytes))});
    if (one.at_once && ending_ == kNone) ending_ = found_.size() - 1;
    return true;
  });
}

}  // namespace dtrain::runner
