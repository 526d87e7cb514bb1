#include "engine/formats/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <thread>
#include <utility>

#include "engine/formats/crc32c.h"

namespace dtrain::engine {

Error file_error(std::string_view call, const std::filesystem::path& path, int errno_value) {
  Error error = errno_error(fmt::format("{} {}", call, path.native()), errno_value);
  const bool may_pass =
      errno_value == EIO || errno_value == EAGAIN || errno_value == ETIMEDOUT || errno_value == ESTALE;
  if (may_pass) error.code = Code::Unavailable;
  if (errno_value == EFBIG) error.code = Code::ResourceExhausted;
  if (error.code == Code::ResourceExhausted) error.hint = "free some disk space";
  return error;
}

Result<FileWriter> FileWriter::create(const std::filesystem::path& path) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!fd) return file_error("create", path, errno);
  return FileWriter(path, std::move(fd));
}

Status FileWriter::write(std::span<const std::byte> bytes) {
  crc32c_ = engine::crc32c(bytes, crc32c_);
  bytes_ += bytes.size();
  while (!bytes.empty()) {
    const size_t chunk = std::min<size_t>(bytes.size(), size_t{64} << 20);
    const ssize_t written = ::write(fd_.get(), bytes.data(), chunk);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return file_error("write", path_, errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return ok();
}

Status FileWriter::finish() {
  while (::fsync(fd_.get()) != 0) {
    if (errno != EINTR) return file_error("sync", path_, errno);
  }
  // Linux has let go of the descriptor even if it says EINTR.
  if (::close(fd_.release()) != 0 && errno != EINTR) return file_error("close", path_, errno);
  return ok();
}

Status sync_folder(const std::filesystem::path& folder) {
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return file_error("open", folder, errno);
  while (::fsync(fd.get()) != 0) {
    // Some network file systems know no sync of a folder.
    if (errno == EINVAL || errno == ENOTSUP) return ok();
    if (errno != EINTR) return file_error("sync", folder, errno);
  }
  return ok();
}

Status rename_file(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return file_error("rename to", to, errno);
  return sync_folder(to.parent_path());
}

Status rename_folder(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) {
    if (errno != EEXIST && errno != ENOTEMPTY) return file_error("rename to", to, errno);
    std::error_code ignored;
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
      std::filesystem::remove_all(from, ignored);
    } else {  // a file system that can't exchange: for a moment there is neither
      std::filesystem::remove_all(to, ignored);
      if (::rename(from.c_str(), to.c_str()) != 0) return file_error("rename to", to, errno);
    }
  }
  return sync_folder(to.parent_path());
}

Status try_again(const std::function<Status()>& attempt, int times, std::chrono::milliseconds pause) {
  for (int tried = 1;; ++tried) {
    Status status = attempt();
    if (status.ok() || tried >= times || status.error().code != Code::Unavailable) return status;
    std::this_thread::sleep_for(pause);
    pause *= 2;
  }
}

Status try_to_read(const std::function<Status()>& attempt) {
  return try_again([&]() -> Status {
    Status done = attempt();
    if (done.ok()) return ok();
    Error error = std::move(done).error();
    if (error.code == Code::Internal || error.code == Code::ResourceExhausted) error.code = Code::Unavailable;
    return error;
  });
}

Status replace_file(const std::filesystem::path& path, const std::function<Status(FileWriter&)>& fill) {
  std::filesystem::path unfinished = path;
  unfinished += ".unfinished";
  Status status = try_again([&]() -> Status {
    TRY(FileWriter file, FileWriter::create(unfinished));
    TRY(fill(file));
    TRY(file.finish());
    return rename_file(unfinished, path);
  });
  if (!status.ok()) ::unlink(unfinished.c_str());
  return status;
}

}  // namespace dtrain::engine
