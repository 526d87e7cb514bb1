// The SHA-256 of a file that others may be writing to.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <string>

#include "schema/buffer.h"
#include "schema/sha256.h"

namespace dtrain {

class FileHash {
 public:
  // `progress` (may be empty) gets the bytes hashed since the last call, now and then.
  explicit FileHash(std::function<void(uint64_t bytes)> progress);

  // Reads the open file until a whole pass saw one and the same file: a few times, then Aborted.
  // `st` becomes what it was during that pass. `path` is for messages.
  Result<Sha256> hash(int fd, const std::string& path, struct stat& st);

 private:
  // One pass. True when it read exactly the bytes that `st` announces.
  Result<bool> pass(int fd, const std::string& path, uint64_t size);

  Sha256Stream stream_;
  Buffer buffer_;
  std::function<void(uint64_t)> progress_;
};

// The error of a file or directory of the project that can't be read.
Error cannot_read(const std::string& path, int errno_value);

// What to do about a file that can't be part of a snapshot.
inline constexpr const char* kHowToLeaveOut = "list it in .dtrainignore, or bind it with `data:`";

}  // namespace dtrain
