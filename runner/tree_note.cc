#include "runner/tree_note.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "schema/small_file.h"
#include "schema/clock.h"
#include "schema/fd.h"

namespace dtrain::runner {

namespace fs = std::filesystem;

Result<TreeNote> read_note(const fs::path& path) {
  TRY(const auto bytes, read_file(path));
  if (!bytes) return errno_error("open " + path.native(), ENOENT);
  const size_t end = bytes->find('\n');
  if (end == std::string::npos) return Error{Code::DataLoss, path.native() + " is damaged", ""};
  return TreeNote{bytes->substr(0, end), bytes->substr(end + 1)};
}

Status write_note(const fs::path& path, std::string_view manifest) {
  const fs::path temporary = path.parent_path() / fmt::format("{}{}-{}", kUnfinishedPrefix,
                                                              ::getpid(), path.filename().native());
  const Fd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) return errno_error("create " + temporary.native(), errno);
  std::string bytes = boot_id() + '\n';
  bytes.append(manifest);
  const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
  if (written != static_cast<ssize_t>(bytes.size()) ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    const Error error = errno_error("write " + path.native(), written < 0 ? errno : ENOSPC);
    ::unlink(temporary.c_str());
    return error;
  }
  return ok();
}

std::vector<KnownTree> known_trees(const fs::path& folder) {
  std::vector<KnownTree> trees;
  std::error_code failed;
  fs::directory_iterator item(folder, failed);
  for (; !failed && item != fs::directory_iterator(); item.increment(failed)) {
    const std::string name = item->path().filename().native();
    if (!name.ends_with(kTreeNoteSuffix)) continue;
    const auto root =
        sha256_from_hex(std::string_view(name).substr(0, name.size() - kTreeNoteSuffix.size()));
    struct stat st {};
    if (!root.ok() || ::lstat(item->path().c_str(), &st) != 0) continue;
    trees.push_back({folder / to_hex(*root), item->path(), *root,
                     st.st_mtim.tv_sec * 1'000'000'000 + st.st_mtim.tv_nsec});
  }
  std::sort(trees.begin(), trees.end(),
            [](const KnownTree& a, const KnownTree& b) { return a.used_ns > b.used_ns; });
  return trees;
}

}  // namespace dtrain::runner
