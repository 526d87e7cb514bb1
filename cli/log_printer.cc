#include "cli/log_printer.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "cli/words.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace {

constexpr std::string_view kGoesOn = " [... the line goes on]";
constexpr Ink kSourceInks[] = {Ink::Cyan, Ink::Green, Ink::Yellow, Ink::Blue, Ink::Magenta};
// One bar alone may move smoothly; several would make the screen flicker.
constexpr int64_t kOneBarRefreshMs = 100;
constexpr int64_t kManyBarsRefreshMs = 1000;
// A line that stays unfinished this long is shown although it may go on.
constexpr int64_t kUnfinishedShownAfterMs = 500;

std::string elapsed_time(uint64_t from_unix_ms, uint64_t unix_ms) {
  uint64_t seconds = unix_ms > from_unix_ms ? (unix_ms - from_unix_ms) / 1000 : 0;
  return fmt::format("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
}

}  // namespace

LogPrinter::LogPrinter(LogFormat format) : format_(std::move(format)) {}

void LogPrinter::resize(const Screen& screen) {
  erase_live_rows();
  format_.screen = screen;
}

void LogPrinter::set_ids(const std::vector<std::string>& ids) {
  for (const std::string& id : ids) label_width_ = std::max(label_width_, id.size());
  for (const std::string& id : ids) source_of(id);
  for (const auto& source : sources_) label(*source);
}

LogPrinter::Source& LogPrinter::source_of(const std::string& id) {
  if (last_ != nullptr && last_->id == id) return *last_;
  auto found = by_id_.find(id);
  if (found == by_id_.end()) {
    auto source = std::make_unique<Source>();
    source->id = id;
    source->lines = LineSplitter(!format_.raw);
    // The experiment itself, a number without a role, is not one of the many.
    bool is_replica = id.find_first_not_of("0123456789.") != std::string::npos;
    if (is_replica) source->ink = kSourceInks[sources_.size() % std::size(kSourceInks)];
    label(*source);
    found = by_id_.emplace(id, source.get()).first;
    sources_.push_back(std::move(source));
  }
  last_ = found->second;
  return *last_;
}

void LogPrinter::label(Source& source) const {
  source.label = fmt::format("{:<{}}| ", source.id, label_width_ + 1);
  source.prefix_second = UINT64_MAX;
}

const std::string& LogPrinter::prefix_of(Source& source, uint64_t time_unix_ms) {
  uint64_t second = time_unix_ms / 1000;
  if (second == source.prefix_second) return source.prefix;
  source.prefix_second = second;
  if (format_.start_unix_ms == 0) format_.start_unix_ms = time_unix_ms;
  std::string time;
  switch (format_.time) {
    case TimeStyle::Clock:
      time = clock_time(time_unix_ms);
      break;
    case TimeStyle::Elapsed:
      time = elapsed_time(format_.start_unix_ms, time_unix_ms);
      break;
    case TimeStyle::Iso:
      time = iso_time(time_unix_ms);
      break;
  }
  source.prefix =
      paint(fmt::format("{}[{}] ", source.label, time), source.ink, format_.screen.colours);
  return source.prefix;
}

void LogPrinter::add(const pb::LogChunk& chunk, int64_t now_ms) {
  Source& source = source_of(chunk.replica());
  if (chunk.attempt() != source.attempt) {
    finish_line(source);  // the process before was cut off in the middle of a line
    source.attempt = chunk.attempt();
    source.colours = {};
  }
  uint64_t time_unix_ms = chunk.time_unix_ms();
  if (chunk.dropped_bytes() > 0) {
    finish_line(source);
    const std::string mark = fmt::format("[{} of output lost here: its host had no room for it]",
                                         human_size(chunk.dropped_bytes()));
    if (format_.raw) {
      remarks_ += fmt::format("{}: {}\n", source.id, mark);
    } else {
      print_own(source, mark, Ink::Red, time_unix_ms);
    }
  }
  bool was_unfinished = !source.lines.pending().empty();
  // A line carries the time of its first byte.
  uint64_t line_time_unix_ms = was_unfinished ? source.line_time_unix_ms : time_unix_ms;
  source.lines.feed(chunk.data(), [&](const Line& line) {
    print_line(source, line, line_time_unix_ms);
    line_time_unix_ms = time_unix_ms;
    was_unfinished = false;
  });
  if (!was_unfinished) source.line_since_ms = now_ms;
  source.line_time_unix_ms = line_time_unix_ms;
}

void LogPrinter::print_line(Source& source, const Line& line, uint64_t time_unix_ms) {
  if (format_.matches && !format_.matches(line.text)) return;
  if (live_rows_ > 0) erase_live_rows();
  if (format_.raw) {
    out_ += line.text;
    if (line.whole) out_ += '\n';
    return;
  }
  std::string_view text = line.text;
  if (std::memchr(text.data(), '\r', text.size()) != nullptr) text = last_version(text);
  out_ += prefix_of(source, time_unix_ms);
  if (format_.screen.is_terminal) {
    out_ += source.colours.codes();
    append_for_screen(out_, text, format_.screen.colours, source.colours);
    if (!source.colours.codes().empty()) out_ += kInkEnd;
  } else {
    out_ += text;
  }
  if (!line.whole) out_ += kGoesOn;
  out_ += '\n';
}

void LogPrinter::print_own(Source& source, std::string_view text, Ink ink, uint64_t time_unix_ms) {
  if (live_rows_ > 0) erase_live_rows();
  while (true) {
    size_t end = text.find('\n');
    out_ += prefix_of(source, time_unix_ms);
    out_ += paint(screen_text(text.substr(0, end), 0), ink, format_.screen.colours);
    out_ += '\n';
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

void LogPrinter::add(const pb::StateEvent& event) {
  if (format_.raw || format_.matches) return;
  Source& source = source_of(event.id());
  // Output may be here before the news that it runs: its line goes on.
  const auto state = parse_state(event.state());
  const bool gone = !state || is_terminal(*state) || *state == State::Restarting || *state == State::Suspended;
  if (gone) finish_line(source);
  Ink ink = event.state() == "FAILED" || event.state() == "LOST" ? Ink::Red : Ink::Bold;
  const bool told = event.reason() == source.reason || says_state(event.reason(), event.state());
  // Only its reason is new: it waits for something else now.
  const bool same = state && !is_terminal(*state) && event.state() == source.state && !told && !event.reason().empty();
  if (!same) print_own(source, "--> " + event.state(), ink, event.time_unix_ms());
  source.state = event.state();
  if (!event.reason().empty() && !told) {
    print_own(source, "Reason: " + event.reason(), Ink::Plain, event.time_unix_ms());
  }
  source.reason = event.reason();
  // Only an end of its own has a code to tell, and a reason that names it needs no second line.
  bool own_end = event.state() == "FAILED" || event.state() == "LOST";
  std::string exit_code = fmt::format("exit code {}", event.exit_code());
  if (own_end && event.exit_code() != 0 && event.reason().find(exit_code) == std::string::npos) {
    print_own(source, fmt::format("Exit Code: {}", event.exit_code()), Ink::Plain,
              event.time_unix_ms());
  }
}

void LogPrinter::note(const std::string& id, std::string_view text, uint64_t time_unix_ms) {
  if (format_.raw || format_.matches) return;
  print_own(source_of(id), text, Ink::Dim, time_unix_ms);
}

void LogPrinter::finish_line(Source& source) {
  source.lines.finish([&](Line line) {
    line.whole = !format_.raw;  // raw is as the process wrote it: no newline where there was none
    print_line(source, line, source.line_time_unix_ms);
  });
}

void LogPrinter::finish() {
  for (const auto& source : sources_) finish_line(*source);
  erase_live_rows();
  next_settle_ms_.reset();
}

bool LogPrinter::is_live(const Source& source, int64_t now_ms) const {
  if (last_version(source.lines.pending()).empty()) return false;
  return source.lines.overwritten() || now_ms - source.line_since_ms >= kUnfinishedShownAfterMs;
}

std::string LogPrinter::live_text(Source& source) {
  // One column stays free: a full row would wrap, and erasing counts rows.
  size_t width = format_.screen.width - 1;
  prefix_of(source, source.line_time_unix_ms);
  size_t prefix_width = source.prefix.size();
  if (format_.screen.colours && source.ink != Ink::Plain) {
    prefix_width -= ink_code(source.ink).size() + kInkEnd.size();
  }
  if (prefix_width + 8 > width) return screen_text(last_version(source.lines.pending()), width);
  return source.prefix + screen_text(last_version(source.lines.pending()), width - prefix_width);
}

void LogPrinter::settle(int64_t now_ms) {
  next_settle_ms_.reset();
  if (!format_.screen.is_terminal || format_.raw || format_.matches) return;
  size_t live = 0;
  for (const auto& source : sources_) live += is_live(*source, now_ms) ? 1u : 0u;
  int64_t refresh_ms = live > 1 ? kManyBarsRefreshMs : kOneBarRefreshMs;
  bool changed = false;
  auto wake_at = [&](int64_t at_ms) {
    next_settle_ms_ = std::min(next_settle_ms_.value_or(at_ms), at_ms);
  };
  for (const auto& source : sources_) {
    if (!is_live(*source, now_ms)) {
      changed = changed || !source->shown.empty();
      source->shown.clear();
      if (!source->lines.pending().empty())
        wake_at(source->line_since_ms + kUnfinishedShownAfterMs);
      continue;
    }
    std::string text = live_text(*source);
    if (text == source->shown) continue;
    if (!source->shown.empty() && now_ms - source->shown_at_ms < refresh_ms) {
      wake_at(source->shown_at_ms + refresh_ms);
      continue;
    }
    source->shown = std::move(text);
    source->shown_at_ms = now_ms;
    changed = true;
  }
  if (changed || (live > 0 && live_rows_ == 0)) draw_live_rows();
}

void LogPrinter::erase_live_rows() {
  if (live_rows_ == 0) return;
  out_ += '\r';
  if (live_rows_ > 1) out_ += fmt::format("\x1b[{}A", live_rows_ - 1);
  out_ += "\x1b[J";
  live_rows_ = 0;
}

void LogPrinter::draw_live_rows() {
  erase_live_rows();
  // The lines above stay readable whatever the number of bars.
  size_t rows_max = std::max<size_t>(1, format_.screen.height / 3);
  for (const auto& source : sources_) {
    if (source->shown.empty() || live_rows_ == rows_max) continue;
    if (live_rows_ > 0) out_ += '\n';
    out_ += source->shown;
    ++live_rows_;
  }
}

}  // namespace dtrain::cli
