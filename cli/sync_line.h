// "Syncing project (5.7 MB, 6 files)...done": one line, with a bar on a terminal past one second.
//
// Pure: what happened and the time go in, bytes to be written come out.
#pragma once

#include <cstdint>
#include <string>

#include "cli/terminal.h"

namespace dtrain::cli {

class SyncLine {
 public:
  SyncLine(const Screen& screen, int64_t now_ms) : screen_(screen), started_ms_(now_ms) {}

  // While the project is read.
  std::string reading(uint64_t read_bytes, uint64_t unread_bytes, int64_t now_ms);
  // The size is known; the snapshot is about to travel.
  std::string sending(uint64_t files, uint64_t bytes);
  std::string progress(uint64_t sent_bytes, uint64_t total_bytes, int64_t now_ms);
  std::string done();
  // The line ends without "done": an error follows.
  std::string broken();

 private:
  std::string redraw(const std::string& text, int64_t now_ms);

  Screen screen_;
  int64_t started_ms_;
  int64_t drawn_ms_ = 0;
  std::string line_;    // "Syncing project (5.7 MB, 6 files)..."
  bool drawn_ = false;  // something is on the line that must be cleared first
  bool open_ = false;   // `line_` was printed and not ended
};

}  // namespace dtrain::cli
