// The file in which somebody is given a key of this daemon.
#pragma once

#include <functional>
#include <string>

#include "schema/result.h"

namespace dtrain::cli {

// As it was typed, else NAME.key. AlreadyExists: something is there, and no key need be made.
Result<std::string> key_file(const std::string& name, const std::string& typed);

// For its owner alone to read. `take_back`, where it can't be written: nobody has that key.
Status write_key(const std::string& file, const std::string& key, const std::function<void()>& take_back);

}  // namespace dtrain::cli
