// Log records and state changes of an experiment, in RiseML's line shape:
//
//   4.worker.1    | [2017-08-31T07:23:46Z] text
//   4.worker.1    | [2017-08-31T07:23:46Z] --> RUNNING
//
// Pure: records and the time go in, bytes to be written come out, so that tests compare bytes. On a
// screen each ID has its colour, and unfinished lines (progress bars) live in rows at the bottom
// that are redrawn in place; in a pipe a line appears once, complete, in its last version. Owner:
// the command that prints. Never: reads a clock, a terminal or a file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/escapes.h"
#include "cli/line_splitter.h"
#include "cli/printer.h"
#include "cli/terminal.h"
#include "schema/dtrain.pb.h"

namespace dtrain::cli {

enum class TimeStyle { Clock, Elapsed, Iso };

struct LogFormat {
  Screen screen;  // live rows on a terminal, colours if it has them
  TimeStyle time = TimeStyle::Iso;
  uint64_t start_unix_ms = 0;  // where Elapsed counts from; 0: the first record
  bool raw = false;  // the bytes alone: no prefix, no states, no escaping; losses are remarked on
  // Only lines for which it is true; empty: all. State changes are left out when it is set.
  std::function<bool(std::string_view line)> matches;
};

class LogPrinter final : public Printer {
 public:
  explicit LogPrinter(LogFormat format);
  LogPrinter(const LogPrinter&) = delete;
  LogPrinter& operator=(const LogPrinter&) = delete;

  // The prefix is as wide as the longest ID.
  void set_ids(const std::vector<std::string>& ids) override;
  void add(const pb::LogChunk& chunk, int64_t now_ms) override;
  void add(const pb::StateEvent& event) override;
  void note(const std::string& id, std::string_view text, uint64_t time_unix_ms) override;
  void finish() override;
  // Redraws live rows where that is due.
  void settle(int64_t now_ms) override;
  std::optional<int64_t> next_settle_ms() const override { return next_settle_ms_; }
  void resize(const Screen& screen) override;
  const std::string& output() const override { return out_; }
  void clear() override { out_.clear(); }
  std::string take_remarks() override { return std::exchange(remarks_, ""); }

 private:
  struct Source {
    std::string id;
    Ink ink = Ink::Plain;
    std::string label;   // "4.worker.1    | "
    std::string prefix;  // label and time, formatted, for `prefix_second`
    uint64_t prefix_second = UINT64_MAX;
    LineSplitter lines;
    OpenColours colours;
    uint32_t attempt = 0;
    uint64_t line_time_unix_ms = 0;  // of the unfinished line's first byte
    int64_t line_since_ms = 0;       // the same, in now_ms
    std::string state;               // as it was told last
    std::string reason;              // the last one printed; the same is not repeated
    std::string shown;               // its live row as it was last drawn
    int64_t shown_at_ms = 0;
  };

  Source& source_of(const std::string& id);
  void label(Source& source) const;
  const std::string& prefix_of(Source& source, uint64_t time_unix_ms);
  void print_line(Source& source, const Line& line, uint64_t time_unix_ms);
  void print_own(Source& source, std::string_view text, Ink ink, uint64_t time_unix_ms);
  void finish_line(Source& source);
  void erase_live_rows();
  void draw_live_rows();
  bool is_live(const Source& source, int64_t now_ms) const;
  std::string live_text(Source& source);

  LogFormat format_;
  size_t label_width_ = 0;
  std::vector<std::unique_ptr<Source>> sources_;  // in the order of ids
  std::map<std::string, Source*, std::less<>> by_id_;
  Source* last_ = nullptr;  // of the previous record: chunks come in runs
  std::string out_;
  std::string remarks_;
  size_t live_rows_ = 0;  // on the screen now
  std::optional<int64_t> next_settle_ms_;
};

}  // namespace dtrain::cli
