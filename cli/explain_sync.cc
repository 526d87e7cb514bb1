#include "cli/explain_sync.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "cli/escapes.h"
#include "cli/sink.h"
#include "schema/snapshot.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

namespace {

// As the sync names it: relative to the project, "a/b".
fs::path path_in_project(const fs::path& typed, const fs::path& root) {
  fs::path path = typed.lexically_normal();
  if (path.is_absolute()) path = path.lexically_relative(root);
  return path.has_filename() ? path : path.parent_path();
}

bool lies_in(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

std::string explained(const SyncDecision& decision, const std::string& path) {
  return fmt::format("{} {}{}\n", decision.included ? "in " : "out", screen_text(path, 0),
                     decision.why.empty() ? "" : ": " + screen_text(decision.why, 0));
}

}  // namespace

Result<int> explain_sync(const fs::path& root, const std::string& path) {
  SnapshotOptions snapshot;
  const fs::path wanted = path_in_project(path, root);
  std::string text, of_folder;
  snapshot.explain = [&](const SyncDecision& decision) {
    if (path.empty() || fs::path(decision.path) == wanted) {
      text += explained(decision, decision.path);
    } else if (!decision.included && lies_in(wanted, decision.path)) {
      of_folder = explained(decision, wanted.string());  // it is not looked into
    }
  };
  snapshot.limits.file_bytes_max = UINT64_MAX;  // what is too large is to be found here
  const Status explained_all = explain_snapshot(root, snapshot);
  if (text.empty()) text = of_folder;
  if (text.empty() && explained_all.ok()) {
    return Error{Code::NotFound, fmt::format("the sync meets nothing named {}", path),
                 "paths are relative to the project, and a folder is met by what is in it"};
  }
  Sink sink(STDOUT_FILENO);
  sink.write(text);
  TRY(sink.written());
  TRY(explained_all);
  return 0;
}

}  // namespace dtrain::cli
