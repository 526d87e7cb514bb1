// --grep: which lines are shown.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "schema/result.h"

namespace dtrain::cli {

// A POSIX extended regular expression that is searched in each line. InvalidArgument when it is
// none.
Result<std::function<bool(std::string_view)>> compile_filter(const std::string& expression);

}  // namespace dtrain::cli
