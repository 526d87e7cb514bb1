#include "cli/sync_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/words.h"

namespace dtrain::cli {

namespace {

constexpr int64_t kSilentMs = 1'000;  // what is faster than this needs no bar
constexpr int64_t kRedrawMs = 100;
constexpr size_t kBarColumns = 20;
constexpr size_t kBarColumnsMin = 4;
constexpr std::string_view kClear = "\r\x1b[K";

std::string bar(double share, size_t columns) {
  size_t filled = static_cast<size_t>(share * static_cast<double>(columns));
  return "[" + std::string(filled, '#') + std::string(columns - filled, '.') + "]";
}

// On a narrow screen the bar shrinks and goes: the figures say more.
std::string with_bar(std::string_view text, uint64_t done_bytes, uint64_t total_bytes,
                     const Screen& screen) {
  double of = static_cast<double>(std::max<uint64_t>(total_bytes, 1));
  double share = std::min(1.0, static_cast<double>(done_bytes) / of);
  const std::string figures = fmt::format(" {:3.0f} % of {}", share * 100, human_size(total_bytes));
  const size_t taken = display_width(text) + figures.size() + 3;  // its brackets, the last column
  const size_t room = screen.width > taken ? screen.width - taken : 0;
  const size_t columns = std::min(kBarColumns, room);
  return std::string(text) + (columns < kBarColumnsMin ? "" : bar(share, columns)) + figures;
}

}  // namespace

std::string SyncLine::redraw(const std::string& text, int64_t now_ms) {
  if (!screen_.is_terminal || now_ms - started_ms_ < kSilentMs) return "";
  if (drawn_ && now_ms - drawn_ms_ < kRedrawMs) return "";
  drawn_ = true;
  drawn_ms_ = now_ms;
  return std::string(kClear) + cut_to_width(text, screen_.width - 1);
}

std::string SyncLine::reading(uint64_t read_bytes, uint64_t unread_bytes, int64_t now_ms) {
  return redraw(with_bar("Reading project...", read_bytes, unread_bytes, screen_), now_ms);
}

std::string SyncLine::sending(uint64_t files, uint64_t bytes) {
  line_ = fmt::format("Syncing project ({}, {})...", human_size(bytes), human_count(files, "file"));
  std::string out = drawn_ ? std::string(kClear) : "";
  drawn_ = false;
  open_ = true;
  return out + line_;
}

std::string SyncLine::progress(uint64_t sent_bytes, uint64_t total_bytes, int64_t now_ms) {
  if (total_bytes == 0) return "";
  return redraw(with_bar(line_, sent_bytes, total_bytes, screen_), now_ms);
}

std::string SyncLine::done() {
  open_ = false;
  if (!drawn_) return "done\n";
  drawn_ = false;
  return std::string(kClear) + line_ + "done\n";
}

std::string SyncLine::broken() {
  bool needs_end = open_ || drawn_;
  open_ = drawn_ = false;
  return needs_end ? "\n" : "";
}

}  // namespace dtrain::cli
