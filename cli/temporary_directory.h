// A directory of this process's own, gone with the object.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

#include "schema/result.h"

namespace dtrain::cli {

class TemporaryDirectory {
 public:
  // `kind` is a part of its name.
  static Result<std::unique_ptr<TemporaryDirectory>> make(const std::string& kind) {
    std::string pattern = (std::filesystem::temp_directory_path() / ("dtrain-" + kind + "-XXXXXX")).string();
    if (mkdtemp(pattern.data()) == nullptr) return errno_error("make a temporary directory", errno);
    return std::unique_ptr<TemporaryDirectory>(new TemporaryDirectory(pattern));
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit TemporaryDirectory(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace dtrain::cli
