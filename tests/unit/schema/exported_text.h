// What a manifest or a script that was exported has, and what is noted of it.
#pragma once

#include <algorithm>
#include <string>

#include "schema/exported.h"

namespace dtrain::tests {

inline bool has(const Exported& exported, const std::string& part) { return exported.text.find(part) != std::string::npos; }

inline bool says(const Exported& exported, const std::string& begin) {
  return std::ranges::any_of(exported.notes, [&](const std::string& note) { return note.starts_with(begin); });
}

}  // namespace dtrain::tests
