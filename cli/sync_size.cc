#include "cli/sync_size.h"

#include <fmt/format.h>

#include "cli/words.h"

namespace dtrain::cli {

SyncSize size_of_sync(const Snapshot& snapshot) {
  if (snapshot.total_bytes >= kAskBytes || snapshot.file_count >= kAskFiles) return SyncSize::Ask;
  if (snapshot.total_bytes >= kWarnBytes || snapshot.file_count >= kWarnFiles) {
    return SyncSize::Warn;
  }
  return SyncSize::Fine;
}

std::string what_is_large(const Snapshot& snapshot) {
  // A part that is less than half explains nothing.
  bool one_part = snapshot.total_bytes >= kWarnBytes && !snapshot.largest.empty() &&
                  snapshot.largest.front().second >= snapshot.total_bytes / 2;
  if (one_part) {
    return fmt::format("{} is {} of {}", snapshot.largest.front().first,
                       human_size(snapshot.largest.front().second),
                       human_size(snapshot.total_bytes));
  }
  return fmt::format("the project is {} in {}", human_size(snapshot.total_bytes),
                     human_count(snapshot.file_count, "file"));
}

}  // namespace dtrain::cli
