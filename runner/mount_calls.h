// Calls of the kernel about mounts that are newer than some of the libraries dtrain is built with. After a fork they may
// be used as they are. What answers an int answers 0, or errno.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

namespace dtrain::runner {

// As the kernel has them; <linux/mount.h> and <sys/mount.h> can't both be included everywhere.
inline constexpr unsigned kRecursive = 0x8000;  // AT_RECURSIVE
struct MountAttributes {
  uint64_t set = 0;
  uint64_t clear = 0;
  uint64_t propagation = 0;
  uint64_t user_namespace = 0;
};

// The mount at a path or, with an empty path, that which clone_mounts() gave; `below`: and all below it. Linux 5.12.
enum class Below : bool { AsTheyAre, Too };
inline int make_read_only(int tree, const char* path, Below below) {
  const MountAttributes attributes{/*MOUNT_ATTR_RDONLY*/ 1, 0, 0, 0};
  constexpr long kMountSetattr = 442;
  const unsigned flags = (below == Below::Too ? kRecursive : 0) | (*path == '\0' ? AT_EMPTY_PATH : 0);
  return ::syscall(kMountSetattr, tree, path, flags, &attributes, sizeof attributes) == 0 ? 0 : errno;
}

// A copy of the mounts at a path and below it, which is nowhere yet: a descriptor, or -1 and errno. Linux 5.2.
inline int clone_mounts(const char* path) {
  constexpr long kOpenTree = 428;
  constexpr unsigned kClone = 1;  // OPEN_TREE_CLONE
  return static_cast<int>(::syscall(kOpenTree, AT_FDCWD, path, kClone | O_CLOEXEC | kRecursive));
}

// Puts that copy somewhere.
inline int move_mount_to(int tree, const char* path) {
  constexpr long kMoveMount = 429;
  constexpr unsigned kFromEmptyPath = 4;  // MOVE_MOUNT_F_EMPTY_PATH
  return ::syscall(kMoveMount, tree, "", AT_FDCWD, path, kFromEmptyPath) == 0 ? 0 : errno;
}

}  // namespace dtrain::runner
