#include "schema/disk_room.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>

namespace dtrain {

namespace {

constexpr uint64_t kLeftBytesMax = uint64_t{32} << 20;
constexpr uint64_t kLeftPart = 16;  // of a small disk

uint64_t room_bytes(int fd, uint64_t left_halves) {
  struct statvfs disk = {};
  if (fstatvfs(fd, &disk) != 0 || disk.f_blocks == 0) return UINT64_MAX;
  // Root may write into what the file system keeps from others.
  const uint64_t free_bytes = (geteuid() == 0 ? disk.f_bfree : disk.f_bavail) * disk.f_frsize;
  const uint64_t left_bytes = std::min(kLeftBytesMax, disk.f_blocks * disk.f_frsize / kLeftPart);
  return free_bytes - std::min(free_bytes, left_bytes / 2 * left_halves);
}

}  // namespace

uint64_t log_room_bytes(int fd) { return room_bytes(fd, 2); }

uint64_t spool_room_bytes(int fd) { return room_bytes(fd, 3); }

}  // namespace dtrain
