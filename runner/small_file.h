// Whole small files: records beside a launch and the kernel's own in /proc and /sys.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "schema/result.h"

namespace dtrain::runner {

// nullopt: can't be read, for whatever reason. Works on /proc, where a size is not known before.
std::optional<std::string> read_small_file(const std::filesystem::path& path);

// One write() to a file that exists: how the kernel's switches are set.
Status write_switch(const std::filesystem::path& path, std::string_view text);

// Under a temporary name, then renamed: a reader sees the old file, none, or all of it. Mode 0600.
enum class Durability {
  Rename,   // may be missing or empty after a power cut
  Content,  // may be missing then, but never torn
  Fsync,    // outlives it, name and all
};
Status replace_file(const std::filesystem::path& path, std::string_view text,
                    Durability durability);

}  // namespace dtrain::runner
