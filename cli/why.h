// `dtrain why`: the one reason an experiment waits or ended, found among its facts. Pure.
#pragma once

#include <string>
#include <vector>

#include "cli/view.h"
#include "schema/dtrain.pb.h"

namespace dtrain::cli {

struct Why {
  std::string reason;       // one sentence, never empty
  std::string replica;      // the replica that caused it; empty when none did
  std::string hint;         // what to do about it; may be empty
  std::string log_command;  // shows the lines that matter; empty before anything ran
  // Of a replica that ended by itself with an exit code: the end of its log, which find_why() doesn't see.
  bool log_tells = false;
  std::vector<std::string> log_lines;
};

Why find_why(const pb::ShowReply& reply);

std::string render_why(const pb::ExperimentInfo& info, const Why& why, const View& view);

}  // namespace dtrain::cli
