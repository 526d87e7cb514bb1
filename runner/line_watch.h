// Lines of one replica's output that its experiment's failure-policy asks about.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runner/launch_dir.h"
#include "runner/launch_facts.h"
#include "schema/line_pattern.h"

namespace dtrain::runner {

// Owner: KeptReplica. Thread: its loop. Promises: each byte counts once, in whatever pieces it comes; memory is bounded,
// whatever is printed. Of a line longer than kPrintedLineMaxBytes only so many bytes are looked at. A pattern that can't
// be used, as only another version may write it, finds nothing.
class LineWatch {
 public:
  explicit LineWatch(const std::vector<WatchedLine>& wanted);

  void take(std::string_view output);
  void finish();   // no more comes: a line that never ended is whole now

  // The first line of each kind, in the order in which they came.
  const std::vector<PrintedLine>& found() const { return found_; }
  // The first of them for which whoever prints it is ended; null: none.
  const PrintedLine* ending() const { return ending_ == kNone ? nullptr : &found_[ending_]; }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  struct Wanted {
    WatchedLine what;
    LinePattern pattern;
  };
  void look_for_any();
  void take_line(std::string_view line);
  void end_line();

  std::vector<Wanted> wanted_;   // and not found yet
  std::optional<LinePattern> any_;   // of them; nothing: each has to be asked
  std::vector<PrintedLine> found_;
  size_t ending_ = kNone;
  std::string tail_;             // of the line that has not ended
};

}  // namespace dtrain::runner
