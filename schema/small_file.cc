#include "schema/small_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "schema/fd.h"
#include "schema/write_all.h"

namespace dtrain {
namespace {

Result<Fd> write_new(const std::filesystem::path& path, std::string_view text) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) return errno_error("open " + path.string(), errno);
  if (const int failed = write_all(fd.get(), text); failed != 0) {
    ::unlink(path.c_str());
    return errno_error("write " + path.string(), failed);
  }
  return fd;
}

}  // namespace

Result<std::optional<std::string>> read_file(const std::filesystem::path& path, uint64_t offset) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd && errno == ENOENT) return std::optional<std::string>();
  if (!fd) return errno_error("open " + path.string(), errno);
  std::string text;
  for (;;) {
    const size_t have = text.size();
    const size_t step = std::max(size_t{4096}, have);
    text.resize(have + step);
    const ssize_t got = ::pread(fd.get(), text.data() + have, step,
                                static_cast<off_t>(offset + have));
    text.resize(have + (got > 0 ? static_cast<size_t>(got) : 0));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error("read " + path.string(), errno);
    if (got == 0) return std::optional<std::string>(std::move(text));
  }
}

std::optional<std::string> read_small_file(const std::filesystem::path& path) {
  auto text = read_file(path);
  return text.ok() ? std::move(text).value() : std::nullopt;
}

Status write_switch(const std::filesystem::path& path, std::string_view text) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd) return errno_error("open " + path.string(), errno);
  if (::write(fd.get(), text.data(), text.size()) < 0) {
    return errno_error("write " + path.string(), errno);
  }
  return ok();
}

Status write_file(const std::filesystem::path& path, std::string_view text) {
  TRY(write_new(path, text));
  return ok();
}

Status append_file(const std::filesystem::path& path, std::string_view text) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!fd) return errno_error("open " + path.string(), errno);
  const int failed = write_all(fd.get(), text);
  return failed == 0 ? ok() : Status(errno_error("write " + path.string(), failed));
}

Status replace_file(const std::filesystem::path& path, std::string_view text) {
  const std::string temporary = path.string() + ".new";
  TRY(const Fd fd, write_new(temporary, text));
  if (::fsync(fd.get()) != 0) return errno_error("fsync " + temporary, errno);
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    return errno_error("rename " + temporary, errno);
  }
  return sync_directory(path.parent_path());
}

Status sync_directory(const std::filesystem::path& directory) {
  Fd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return errno_error("open " + directory.string(), errno);
  if (::fsync(fd.get()) != 0) return errno_error("fsync " + directory.string(), errno);
  return ok();
}

}  // namespace dtrain
