// 128 random bits in hex: the name of something that no other may ever share.
#pragma once

#include <string>

#include "schema/result.h"

namespace dtrain {

inline constexpr size_t kRandomIdDigits = 32;

Result<std::string> random_id();

}  // namespace dtrain
