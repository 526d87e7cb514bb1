#include "schema/file_hash.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "schema/quote.h"
#include "schema/stat_cache.h"

namespace dtrain {

namespace {

constexpr int kAttempts = 4;
constexpr size_t kChunkBytes = 256u << 10;
constexpr uint64_t kProgressBytes = 16u << 20;

}  // namespace

FileHash::FileHash(std::function<void(uint64_t bytes)> progress)
    : buffer_(kChunkBytes), progress_(std::move(progress)) {}

Result<bool> FileHash::pass(int fd, const std::string& path, uint64_t size) {
  uint64_t done = 0;
  uint64_t reported = 0;
  // Stops at the announced size: a file that grows as fast as it is read would never end.
  while (done < size) {
    const ssize_t got = ::pread(fd, buffer_.data(), buffer_.size(), static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return cannot_read(path, errno);
    if (got == 0) break;
    stream_.add(std::string_view(buffer_.data(), static_cast<size_t>(got)));
    done += static_cast<uint64_t>(got);
    if (progress_ && done - reported >= kProgressBytes) {
      progress_(done - reported);
      reported = done;
    }
  }
  if (progress_) progress_(done - reported);
  return done == size;
}

Result<Sha256> FileHash::hash(int fd, const std::string& path, struct stat& st) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (::fstat(fd, &st) != 0) return cannot_read(path, errno);
    TRY(const bool whole, pass(fd, path, static_cast<uint64_t>(st.st_size)));
    const Sha256 digest = stream_.finish();
    struct stat after {};
    if (::fstat(fd, &after) != 0) return cannot_read(path, errno);
    if (whole && st.st_size == after.st_size && stat_key(st) == stat_key(after)) return digest;
  }
  return Error{Code::Aborted,
               fmt::format("{} keeps changing while it is read", in_quotes(path)),
               fmt::format("stop what writes it, or {}", kHowToLeaveOut)};
}

Error cannot_read(const std::string& path, int errno_value) {
  Error error = errno_error(fmt::format("can't read {}", in_quotes(path)), errno_value);
  if (errno_value == EACCES || errno_value == EPERM) {
    error.hint = fmt::format("make it readable (chmod u+r), or {}", kHowToLeaveOut);
  }
  return error;
}

}  // namespace dtrain
