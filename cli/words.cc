#include "cli/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>

namespace dtrain::cli {

std::string human_size(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} B", bytes);
  constexpr std::string_view kUnits[] = {"KB", "MB", "GB", "TB", "PB"};
  double amount = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.96 would round to "1024.0 KB".
  while (amount >= 1023.95 && unit + 1 < std::size(kUnits)) {
    amount /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

std::string human_memory(uint64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1u << 20);
  // 1023.6 would round to "1024 MiB".
  return mib < 1023.5 ? fmt::format("{:.0f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

std::string human_count(uint64_t n, std::string_view noun) {
  return fmt::format("{} {}{}", n, noun, n == 1 ? "" : "s");
}

std::string human_age(uint64_t age_ms) {
  uint64_t seconds = age_ms / 1000;
  if (seconds == 0) return "just now";
  if (seconds < 60) return human_count(seconds, "second");
  if (seconds < 60 * 60) return human_count(seconds / 60, "minute");
  if (seconds < 24 * 60 * 60) return human_count(seconds / (60 * 60), "hour");
  return human_count(seconds / (24 * 60 * 60), "day");
}

std::string human_ago(uint64_t then_unix_ms, uint64_t now_unix_ms) {
  if (then_unix_ms == 0) return "";
  // A clock that was set back must not print an age of centuries.
  uint64_t age_ms = now_unix_ms > then_unix_ms ? now_unix_ms - then_unix_ms : 0;
  if (age_ms < 1000) return "just now";
  return human_age(age_ms) + " ago";
}

std::string human_duration(uint64_t ms) {
  // To the nearest: what was ended at its limit of 2 s may have run 1.99.
  uint64_t seconds = ms / 1000 + (ms % 1000 >= 500 ? 1 : 0);
  if (seconds < 60) return human_count(seconds, "second");
  uint64_t minutes = seconds / 60;
  if (minutes < 60) return fmt::format("{}m {}s", minutes, seconds % 60);
  return fmt::format("{}h {}m {}s", minutes / 60, minutes % 60, seconds % 60);
}

std::string iso_time(uint64_t unix_ms) {
  std::time_t seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

std::string iso_time_ms(uint64_t unix_ms) {
  std::string text = iso_time(unix_ms);
  text.insert(text.size() - 1, fmt::format(".{:03}", unix_ms % 1000));
  return text;
}

std::string clock_time(uint64_t unix_ms) {
  std::time_t seconds = static_cast<std::time_t>(unix_ms / 1000);
  std::tm parts{};
  localtime_r(&seconds, &parts);
  return fmt::format("{:02}:{:02}:{:02}", parts.tm_hour, parts.tm_min, parts.tm_sec);
}

bool says_state(std::string_view reason, std::string_view state) {
  return std::equal(reason.begin(), reason.end(), state.begin(), state.end(),
                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
}

std::string state_cell(std::string_view state) {
  std::string_view symbol = "●";
  if (state == "CREATED") symbol = "○";
  if (state == "FINISHED") symbol = "✓";
  if (state == "FAILED" || state == "KILLED" || state == "LOST" || state == kUnreadable) symbol = "✗";
  return fmt::format("{} {}", symbol, state);
}

}  // namespace dtrain::cli
