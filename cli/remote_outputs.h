// What experiments wrote to OUTPUT_DIR, at a daemon that is elsewhere: over the connection to it.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/rpc.h"
#include "schema/dtrain.pb.h"
#include "schema/result.h"

namespace dtrain::cli {

class Signals;

// Everything that is below it, by path; of a set that of all members, each below its number; and what is there and does not
// travel, with why. NotFound: there is no such directory.
struct ListedOutputs {
  std::vector<pb::OutputEntry> entries;
  std::vector<pb::OutputTrouble> left_out;
};
Result<ListedOutputs> list_outputs(RpcChannel& channel, const std::string& id);

// The content of files, part by part, in the order in which they are named. What is not there any more is left out. Ends early
// with an error of `take`, and with Cancelled at one of `signals`, which may be null, and is then told by `stopped_by`.
Status read_outputs(RpcChannel& channel, const std::string& id, const std::vector<std::string>& paths, Signals* signals,
                    int& stopped_by, const std::function<Status(const pb::OutputPart&)>& take);

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FilePointer = std::unique_ptr<std::FILE, CloseFile>;
// One file, from its beginning, as a temporary one of this machine. Null: it is not there, or can't be had.
FilePointer open_output(RpcChannel& channel, const std::string& id, const std::string& path);

}  // namespace dtrain::cli
