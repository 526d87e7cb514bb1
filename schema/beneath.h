// Names below a directory, reached one by one and never through a link: whatever lies there, nothing outside is touched.
#pragma once

#include <string>
#include <string_view>

#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain {

// "a/b" of "a/b/c"; empty of "c".
std::string_view parent_path(std::string_view path);
// A C string inside `path`, which ends where its string ends.
const char* base_name(const std::string& path);

// The directory `path` below `root`; an empty path: `root` once more. NotFound: there is none, or something else.
Result<Fd> open_below(int root, std::string_view path);
// The same; what is missing of it is made.
Result<Fd> make_below(int root, std::string_view path);

}  // namespace dtrain
