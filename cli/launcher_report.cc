#include "cli/launcher_report.h"

#include <algorithm>

namespace dtrain::cli {

namespace {

constexpr std::string_view kError = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError";

bool is_rule(const std::string& line) { return line.size() >= 40 && line.find_first_not_of('=') == std::string::npos; }

// Of its log: "E1130 14:30:01.123000 77 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1) ...".
bool is_log(const std::string& line) { return line.find("torch/distributed/elastic/") != std::string::npos && line.find("] ") != std::string::npos; }

}  // namespace

std::vector<std::string> without_launcher_report(std::vector<std::string> lines) {
  const auto error = std::find_if(lines.begin(), lines.end(), [](const std::string& line) { return line.starts_with(kError); });
  if (error == lines.end()) return lines;
  // Its own traceback leads to it, and a table between two rules follows.
  auto begin = std::find(std::make_reverse_iterator(error), lines.rend(), "Traceback (most recent call last):");
  const auto first = begin == lines.rend() ? error : std::prev(begin.base());
  const auto rule = std::find_if(error, lines.end(), is_rule);
  const auto last = rule == lines.end() ? rule : std::find_if(std::next(rule), lines.end(), is_rule);
  std::vector<std::string> kept(lines.begin(), first);
  std::erase_if(kept, is_log);
  if (last != lines.end()) kept.insert(kept.end(), std::next(last), lines.end());
  return kept.empty() ? lines : kept;
}

}  // namespace dtrain::cli
