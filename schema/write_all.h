// Bytes to a descriptor, however many calls that takes.
#pragma once

#include <string_view>

namespace dtrain {

// 0, or why it is not all of them: an errno. Blocks, and goes on after signals.
[[nodiscard]] int write_all(int fd, std::string_view bytes);

}  // namespace dtrain
