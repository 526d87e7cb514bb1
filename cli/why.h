// `dtrain why`: the one reason an experiment waits or ended, found among its facts. Pure but for what asks.
#pragma once

#include <string>
#include <vector>

#include "cli/view.h"
#include "schema/dtrain.pb.h"

namespace dtrain::cli {

class Connection;
struct CommandContext;

struct Why {
  std::string reason;       // one sentence, never empty
  std::string replica;      // the replica that caused it; empty when none did
  uint32_t attempt = 0;     // and in which of its attempts; 0: not known
  std::string hint;         // what to do about it; may be empty
  std::string log_command;  // shows the lines that matter; empty before anything ran
  // Of a replica that ended by itself with an exit code: the end of its log, which find_why() doesn't see.
  bool log_tells = false;
  std::vector<std::string> log_lines;
};

Why find_why(const pb::ShowReply& reply);

// Asks for the lines where the log tells. None when it printed nothing, or when its log can't be had: the reason is
// told all the same.
void add_log_lines(Why& why, Connection& connection, const CommandContext& context);

// Of those lines the one that says it: the last that isn't set in, as a hint or a trace is. Empty without any.
std::string telling_line(const Why& why);

std::string render_why(const pb::ExperimentInfo& info, const Why& why, const View& view);

}  // namespace dtrain::cli
