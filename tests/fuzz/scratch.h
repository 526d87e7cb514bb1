// A folder for the files of a target: in memory where the system has such a place, and gone when
// the process ends in good order.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::fuzz {

class Scratch {
 public:
  Scratch() {
    const std::filesystem::path memory = "/dev/shm";
    const bool usable = ::access(memory.c_str(), W_OK | X_OK) == 0;
    std::string pattern =
        (usable ? memory : std::filesystem::temp_directory_path()) / "dtrain-fuzz.XXXXXX";
    INVARIANT(::mkdtemp(pattern.data()) != nullptr, "there is room for a folder");
    path_ = pattern;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The same file with other bytes in it: who has it open sees them.
inline void put(const std::filesystem::path& path, std::string_view bytes) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  INVARIANT(
      file && ::ftruncate(file.get(), static_cast<off_t>(bytes.size())) == 0 &&
          ::pwrite(file.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
      "the file can be written");
}

inline std::string get(const std::filesystem::path& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string bytes(file ? static_cast<size_t>(::lseek(file.get(), 0, SEEK_END)) : 0, '\0');
  INVARIANT(bytes.empty() || ::pread(file.get(), bytes.data(), bytes.size(), 0) ==
                                 static_cast<ssize_t>(bytes.size()),
            "the file can be read");
  return bytes;
}

}  // namespace dtrain::fuzz
