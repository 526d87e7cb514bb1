#include "cli/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "schema/fd.h"
#include "schema/quote.h"

namespace dtrain::cli {

Status write_new_file(const std::filesystem::path& path, std::string_view text, mode_t mode, std::string hint) {
  const std::string shown = in_quotes(path.string());
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file && errno == EEXIST) return Error{Code::AlreadyExists, shown + " exists already", std::move(hint)};
  if (!file) return errno_error("cannot write " + shown, errno);
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      const int reason = errno;
      ::unlink(path.c_str());
      return errno_error("cannot write " + shown, reason);
    }
    text.remove_prefix(static_cast<size_t>(written));
  }
  return ok();
}

}  // namespace dtrain::cli
