#include "cli/sync_size.h"

#include <fmt/format.h>

#include "cli/words.h"

namespace dtrain::cli {

SyncSize size_of_sync(const ProjectSize& project, const Config& config) {
  if (project.total_bytes >= config.sync_ask_bytes || project.file_count >= kAskFiles) {
    return SyncSize::Ask;
  }
  if (project.total_bytes >= config.sync_warn_bytes || project.file_count >= kWarnFiles) {
    return SyncSize::Warn;
  }
  return SyncSize::Fine;
}

std::string what_is_large(const ProjectSize& project, const Config& config) {
  // A part that is less than half explains nothing.
  bool one_part = project.total_bytes >= config.sync_warn_bytes && !project.largest.empty() &&
                  project.largest.front().second >= project.total_bytes / 2;
  if (one_part) {
    return fmt::format("{} is {} of {}", project.largest.front().first,
                       human_size(project.largest.front().second), human_size(project.total_bytes));
  }
  return fmt::format("the project is {} in {}", human_size(project.total_bytes),
                     human_count(project.file_count, "file"));
}

}  // namespace dtrain::cli
