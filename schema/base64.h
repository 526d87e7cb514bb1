// Bytes written as base64.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

// Its padding may be left out, and lines may end in it. Nothing: it is not written so.
std::optional<std::string> base64_decoded(std::string_view text);

}  // namespace dtrain
