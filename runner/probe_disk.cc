#include "runner/probe_disk.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <vector>

#include "schema/fd.h"
#include "schema/write_all.h"

namespace dtrain::runner {

namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kDiskMostBytes = uint64_t{64} << 20;
constexpr uint64_t kDiskPieceBytes = uint64_t{1} << 20;
constexpr uint64_t kPartOfRoom = 16;   // of what is free, so much is written at the most
constexpr std::chrono::seconds kDiskMostTime{1};

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

}  // namespace

ProbeDisk probe_disk(const std::filesystem::path& directory, const std::string& who, bool is_output) {
  ProbeDisk disk;
  disk.is_output = is_output;
  const auto failed = [&](int number) {
    disk.trouble = std::system_category().message(number);
    return disk;
  };
  struct statvfs room {};
  if (::statvfs(directory.c_str(), &room) != 0) return failed(errno);
  disk.free_bytes = uint64_t{room.f_bavail} * room.f_frsize;
  const std::filesystem::path path = directory / (".dtrain-probe-" + who);
  const Fd file(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
  if (!file) return failed(errno);
  ::unlink(path.c_str());
  // What compresses would tell of the compression.
  std::vector<char> piece(kDiskPieceBytes);
  for (size_t at = 0; at < piece.size(); at += 256) (void)::getrandom(piece.data() + at, 256, 0);
  const uint64_t most = std::clamp(disk.free_bytes / kPartOfRoom, uint64_t{4096}, kDiskMostBytes);
  const auto begin = Clock::now();
  uint64_t written = 0;
  while (written < most && Clock::now() - begin < kDiskMostTime) {
    const size_t size = std::min(kDiskPieceBytes, most - written);
    if (const int number = write_all(file.get(), {piece.data(), size}); number != 0) return failed(number);
    written += size;
  }
  if (::fdatasync(file.get()) != 0) return failed(errno);
  disk.bytes_per_s = static_cast<double>(written) / std::max(seconds_since(begin), 1e-6);
  return disk;
}

}  // namespace dtrain::runner
