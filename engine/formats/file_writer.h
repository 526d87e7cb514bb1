// Files that are written once, from beginning to end, and are on the disk when that is said. A failed
// call is an error with the file's name; Unavailable is what may pass (EIO, a file server
// that is slow) and is worth another try with a new file: after a failed fsync nobody knows what of the old one is on the disk.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string_view>

#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::engine {

// Owner: who writes. Without finish() the file stays as far as it came.
class FileWriter {
 public:
  // Truncates what is there.
  static Result<FileWriter> create(const std::filesystem::path& path);

  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text) { return write(std::as_bytes(std::span(text))); }
  // Everything is on the disk, and the file is closed.
  Status finish();

  // Of what was written so far.
  uint64_t bytes() const { return bytes_; }
  uint32_t crc32c() const { return crc32c_; }

 private:
  FileWriter(std::filesystem::path path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  std::filesystem::path path_;
  Fd fd_;
  uint64_t bytes_ = 0;
  uint32_t crc32c_ = 0;
};

// As errno_error, and tells what may pass from what will not.
Error file_error(std::string_view call, const std::filesystem::path& path, int errno_value);

// Entries of the folder are on the disk.
Status sync_folder(const std::filesystem::path& folder);
// Replaces what is there in one step, and is on the disk.
Status rename_file(const std::filesystem::path& from, const std::filesystem::path& to);
// The same for folders, of which rename() replaces empty ones only.
Status rename_folder(const std::filesystem::path& from, const std::filesystem::path& to);

// Tries until it works, fails for good, or has been tried `times`; with a pause between, twice as long
// each time.
inline constexpr int kTries = 4;
inline constexpr std::chrono::milliseconds kPause{100};
Status try_again(const std::function<Status()>& attempt, int times = kTries,
                 std::chrono::milliseconds pause = kPause);
// The same of what reads: what may pass (a slow file server, no descriptors) is no damage.
Status try_to_read(const std::function<Status()>& attempt);

// A file that is whole or not there, with its name on the disk: `fill` writes it under another name
// first, which goes if that fails.
Status replace_file(const std::filesystem::path& path, const std::function<Status(FileWriter&)>& fill);

}  // namespace dtrain::engine
