// Cuts a replica's bytes into lines, however they were chunked on the way.
//
// Promises: memory for at most kLineMaxBytes of an unfinished line; a longer one comes in parts. A
// line that overwrites itself with carriage returns (a progress bar) keeps only its last version
// when `collapse` is set. Lines are views into the input where possible: no copy, no allocation.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

namespace dtrain::cli {

inline constexpr size_t kLineMaxBytes = 256u << 10;

struct Line {
  std::string_view text;  // without its newline
  bool whole = true;      // false: cut at the bound; the rest of the line follows
};

class LineSplitter {
 public:
  explicit LineSplitter(bool collapse = true) : collapse_(collapse) {}

  // Calls sink(Line) for every line that `data` completes.
  template <typename Sink>
  void feed(std::string_view data, Sink&& sink) {
    while (!data.empty()) {
      const void* newline = std::memchr(data.data(), '\n', data.size());
      if (newline == nullptr) return keep(data, sink);
      size_t length = static_cast<size_t>(static_cast<const char*>(newline) - data.data());
      if (pending_.empty() && length <= kLineMaxBytes) {
        sink(Line{data.substr(0, length), true});
      } else {
        keep(data.substr(0, length), sink);
        sink(Line{pending_, true});
        start_line();
      }
      data.remove_prefix(length + 1);
    }
  }

  // The unfinished line, given out as if it were complete. True if there was one.
  template <typename Sink>
  bool finish(Sink&& sink) {
    if (pending_.empty()) return false;
    sink(Line{pending_, true});
    start_line();
    return true;
  }

  std::string_view pending() const { return pending_; }
  // The unfinished line has overwritten itself: it is a progress bar.
  bool overwritten() const { return overwritten_; }

 private:
  template <typename Sink>
  void keep(std::string_view data, Sink&& sink) {
    while (!data.empty()) {
      size_t room = std::min(kLineMaxBytes - pending_.size(), data.size());
      pending_.append(data.substr(0, room));
      data.remove_prefix(room);
      if (collapse_) drop_overwritten();
      if (pending_.size() == kLineMaxBytes && !data.empty()) {
        sink(Line{pending_, false});
        pending_.clear();
      }
    }
  }

  void drop_overwritten() {
    size_t end = pending_.find_last_not_of('\r');
    if (end == std::string::npos) return;
    size_t last_return = pending_.rfind('\r', end);
    if (end + 1 < pending_.size() || last_return != std::string::npos) overwritten_ = true;
    if (last_return != std::string::npos) pending_.erase(0, last_return + 1);
  }

  void start_line() {
    pending_.clear();
    overwritten_ = false;
  }

  bool collapse_;
  bool overwritten_ = false;
  std::string pending_;
};

// What a person would see of a line at its end: the last version that is not empty.
inline std::string_view last_version(std::string_view line) {
  size_t end = line.find_last_not_of('\r');
  if (end == std::string_view::npos) return {};
  size_t start = line.rfind('\r', end);
  return line.substr(start == std::string_view::npos ? 0 : start + 1,
                     start == std::string_view::npos ? end + 1 : end - start);
}

}  // namespace dtrain::cli
