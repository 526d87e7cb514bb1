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
  const bool asks_for_bytes = project.total_bytes >= config.sync_ask_bytes;
  const bool asks_for_files = !asks_for_bytes && project.file_count >= kAskFiles;
  // A part that is less than half explains nothing.
  bool one_part = project.total_bytes >= config.sync_warn_bytes && !asks_for_files && !project.largest.empty() &&
                  project.largest.front().second >= project.total_bytes / 2;
  const std::string limit = asks_for_bytes   ? fmt::format(" (from {} on you are asked)", human_size(config.sync_ask_bytes))
                            : asks_for_files ? fmt::format(" (from {} on you are asked)", human_count(kAskFiles, "file"))
                                             : "";
  if (one_part) {
    return fmt::format("{} is {} of {}{}", project.largest.front().first,
                       human_size(project.largest.front().second), human_size(project.total_bytes), limit);
  }
  return fmt::format("the project is {} in {}{}", human_size(project.total_bytes),
                     human_count(project.file_count, "file"), limit);
}

}  // namespace dtrain::cli
