// The files of an image with nothing in it but a shell: busybox, which needs no libraries.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace dtrain::tests {

inline constexpr const char* kBusybox = "/bin/busybox";

// Why there is none; empty: there is.
inline std::string tiny_image_unavailable() {
  return ::access(kBusybox, X_OK) == 0 ? "" : std::string(kBusybox) + " is not installed";
}

// Below `folder`, which is made: what busybox is called by in bin, a user, and empty directories.
inline void make_tiny_image(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  for (const char* name : {"bin", "etc", "root", "tmp", "var"}) fs::create_directories(folder / name);
  fs::copy_file(kBusybox, folder / "bin/busybox", fs::copy_options::overwrite_existing);
  for (const char* name : {"sh", "cat", "echo", "ls", "id", "pwd", "printenv", "mkdir", "rm", "mv", "touch", "sleep", "setsid"}) {
    fs::create_symlink("busybox", folder / "bin" / name);
  }
  std::ofstream(folder / "etc/passwd") << "root:x:0:0::/root:/bin/sh\n";
  fs::create_symlink("/tmp", folder / "var/tmp");
}

}  // namespace dtrain::tests
