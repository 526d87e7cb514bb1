#include "schema/spread.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include "schema/fd.h"

namespace dtrain {

void spread_subdirectories(const std::filesystem::path& directory) {
  const Fd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  int flags = 0;
  if (!fd || ::ioctl(fd.get(), FS_IOC_GETFLAGS, &flags) != 0 || (flags & FS_TOPDIR_FL) != 0) return;
  flags |= FS_TOPDIR_FL;
  (void)::ioctl(fd.get(), FS_IOC_SETFLAGS, &flags);
}

}  // namespace dtrain
