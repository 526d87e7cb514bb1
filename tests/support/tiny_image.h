// The files of an image with nothing in it but a shell: busybox, which needs no libraries.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace dtrain::tests {

inline constexpr const char* kBusybox = "/bin/busybox";

// Why none can be entered, found without dtrain; empty: it can.
inline std::string tiny_image_unavailable() {
  if (::access(kBusybox, X_OK) != 0) return std::string(kBusybox) + " is not installed";
  const bool is_root = ::geteuid() == 0;
  const std::string line = std::string("unshare ") + (is_root ? "-m" : "-Urm") +
                           " sh -c 'd=$(mktemp -d) && mkdir $d/l $d/u $d/w $d/m && mount -t overlay overlay "
                           "-o lowerdir=$d/l,upperdir=$d/u,workdir=$d/w $d/m && umount $d/m && rm -rf $d' 2>/dev/null";
  return std::system(line.c_str()) == 0 ? "" : "no overlay can be mounted here";
}

// Below `folder`, which is made: what busybox is called by in bin, a user, and empty directories.
inline void make_tiny_image(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  for (const char* name : {"bin", "etc", "root", "tmp", "var"}) fs::create_directories(folder / name);
  fs::copy_file(kBusybox, folder / "bin/busybox", fs::copy_options::overwrite_existing);
  for (const char* name : {"sh", "cat", "echo", "ls", "id", "pwd", "printenv", "mkdir", "rm", "mv", "touch", "sleep", "setsid", "head"}) {
    fs::create_symlink("busybox", folder / "bin" / name);
  }
  std::ofstream(folder / "etc/passwd") << "root:x:0:0::/root:/bin/sh\n";
  fs::create_symlink("/tmp", folder / "var/tmp");
}

}  // namespace dtrain::tests
