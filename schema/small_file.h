// Whole small files: records beside a launch and the kernel's own in /proc and /sys.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "schema/result.h"

namespace dtrain {

// nullopt: there is none. From `offset` on. Works on /proc, where a size is not known before.
Result<std::optional<std::string>> read_file(const std::filesystem::path& path,
                                             uint64_t offset = 0);
// nullopt: can't be read, for whatever reason.
std::optional<std::string> read_small_file(const std::filesystem::path& path);

// One write() to a file that exists: how the kernel's switches are set.
Status write_switch(const std::filesystem::path& path, std::string_view text);

// What was there before goes first. Mode 0600.
Status write_file(const std::filesystem::path& path, std::string_view text);
// At the end of what is there; the file is made if need be.
Status append_file(const std::filesystem::path& path, std::string_view text);
// Under a temporary name, then renamed: a reader sees the old file, none, or all of it, after a power
// cut too.
Status replace_file(const std::filesystem::path& path, std::string_view text);

// The names in it outlive a power cut.
Status sync_directory(const std::filesystem::path& directory);

}  // namespace dtrain
