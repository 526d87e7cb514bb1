// Sizes for people: "5.7 MB".
#pragma once

#include <cstdint>
#include <string>

namespace dtrain {

std::string size_text(uint64_t bytes);  // one decimal, steps of 1024; "812 B"

}  // namespace dtrain
