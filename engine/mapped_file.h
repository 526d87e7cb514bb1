// A file in the address space, read-only, until it goes out of scope. Who shortens the file
// meanwhile kills the process that reads bytes(), unless that asks before: data sets and checkpoints are replaced by
// renaming, never in place.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>

#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::engine {

class MappedFile {
 public:
  // Of regular files; an empty one is no bytes.
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // What begins at `offset`, by a call: what the disk does not give is an error then, and not the end of the process.
  // DataLoss where the file has become shorter.
  Status read(size_t offset, std::span<std::byte> to) const;
  // It did not become shorter: all of bytes() may be read.
  bool is_whole() const;
  // What of them will be read next: the disk brings it meanwhile.
  void ask_for(const std::byte* from, size_t size) const;

 private:
  MappedFile(Fd fd, const std::byte* data, size_t size) : fd_(std::move(fd)), data_(data), size_(size) {}
  Fd fd_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace dtrain::engine
