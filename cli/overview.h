// `dtrain` alone: which commands there are.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "cli/command.h"

namespace dtrain::cli {

// In lines of at most `width` columns; 0: unbounded.
std::string render_overview(std::span<const Command> commands, size_t width);

// InvalidArgument, with the command that was probably meant.
Error unknown_command(std::string_view word, std::span<const Command> commands);

}  // namespace dtrain::cli
