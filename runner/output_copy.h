// What a replica made, copied to where it is kept.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "schema/result.h"

namespace dtrain::runner {

// Copies `name` ("ckpt/last": a file, a link, or a directory with all below it) from one directory into
// another, over what is there. A file has its name only once it is whole; until then it is `unfinished`
// beside it. What can't be copied, and what is no file (a pipe, a socket), is added to `not_copied` with
// the reason, and the rest goes on; with `spares_newer` so is what is older than what is there. Nothing at
// `from` is no error.
// ResourceExhausted: no room, descriptors or memory. To be called again: what is there by now is not
// copied once more.
Status copy_output(const std::filesystem::path& from, const std::filesystem::path& to,
                   const std::string& name, const std::string& unfinished, bool spares_newer,
                   std::vector<std::string>& not_copied);

}  // namespace dtrain::runner
