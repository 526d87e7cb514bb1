#include "cli/new_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "schema/fd.h"
#include "schema/quote.h"
#include "schema/write_all.h"

namespace dtrain::cli {

Status write_new_file(const std::filesystem::path& path, std::string_view text, mode_t mode, std::string hint) {
  const std::string shown = in_quotes(path.string());
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!file && errno == EEXIST) return Error{Code::AlreadyExists, shown + " exists already", std::move(hint)};
  if (!file) return errno_error("cannot write " + shown, errno);
  const int failed = write_all(file.get(), text);
  if (failed == 0) return ok();
  ::unlink(path.c_str());
  return errno_error("cannot write " + shown, failed);
}

}  // namespace dtrain::cli
