// A small file system of its own, at a directory that it makes where there is none. It takes root: who isn't skips the test.
#pragma once

#include <sys/mount.h>

#include <filesystem>

namespace dtrain::test {

// `options`: as mount -o of a tmpfs.
struct TinyDisk {
  const std::filesystem::path at;
  bool mounted = false;
  TinyDisk(const std::filesystem::path& where, const char* options) : at(where) {
    std::filesystem::create_directories(at);
    mounted = ::mount("tmpfs", at.c_str(), "tmpfs", 0, options) == 0;
  }
  TinyDisk(const TinyDisk&) = delete;
  TinyDisk& operator=(const TinyDisk&) = delete;
  ~TinyDisk() {
    if (mounted) ::umount2(at.c_str(), MNT_DETACH);
  }
};

}  // namespace dtrain::test
