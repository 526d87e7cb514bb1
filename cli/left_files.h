// What a replica left in its work directory, on whatever host it ran.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/connection.h"
#include "cli/json_output.h"
#include "schema/result.h"

namespace dtrain::cli {

// `replica`: an ID of replicas, of which the first is meant; what that is called, and its files.
struct LeftFilesList {
  std::string replica;
  std::string host_name;
  std::vector<OutputFile> files;
};
Result<LeftFilesList> list_left(Connection& connection, const std::string& replica);

// What is at `path`, or, where that is empty, all of it, into `target`, which is made. Nothing that is there is
// overwritten unless forced: then it is an error.
Status copy_left(Connection& connection, const std::string& replica, const std::string& path, const std::filesystem::path& target,
                 bool force);

}  // namespace dtrain::cli
