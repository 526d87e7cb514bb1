// Copies what an experiment wrote to OUTPUT_DIR at a daemon that is elsewhere into a directory here.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cli/rpc.h"
#include "schema/result.h"

namespace dtrain::cli {

class Signals;

struct FetchedOutputs {
  size_t items = 0;                    // of those that were named, or of all at the top
  std::vector<std::string> left_out;   // of them what did not come, each with why
};

// The connection it comes over, and what gets another one when that breaks: true, there is; an error ends all of it.
struct OutputsSource {
  std::function<RpcChannel&()> channel;
  std::function<Result<bool>(const Signals& signals)> again = {};   // none: a connection that breaks is an error
};

// `paths`: files and folders of it, relative; none: all that is there. Each goes by its last name into `target`, which is made; none
// does if one is there already, unless forced: then files and links take the place of files and links, and nothing that of
// a directory. NotFound: it has no such path. A signal ends the program, once what has not come whole is gone; what has stays.
Result<FetchedOutputs> fetch_outputs(const OutputsSource& source, const std::string& id, const std::vector<std::filesystem::path>& paths,
                                     const std::filesystem::path& target, bool force);

}  // namespace dtrain::cli
