// A file that a command makes for people.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "schema/result.h"

namespace dtrain::cli {

// AlreadyExists, with `hint`, where there is one of that name, which stays as it is. Of what can't be written whole
// nothing stays.
Status write_new_file(const std::filesystem::path& path, std::string_view text, mode_t mode, std::string hint);

}  // namespace dtrain::cli
