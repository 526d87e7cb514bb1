// What a process is told by its environment.
#pragma once

#include <cstdlib>
#include <string>

namespace dtrain::engine {

// Empty if it is not set.
inline std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace dtrain::engine
