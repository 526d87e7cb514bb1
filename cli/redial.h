// Reaches the daemon again after it went away, for commands that follow something for a long time.
#pragma once

#include <cstdint>
#include <string>

#include "cli/command.h"
#include "cli/connection.h"
#include "cli/signals.h"

namespace dtrain::cli {

class Redial {
 public:
  // All references must outlive this.
  Redial(Connection& connection, const CommandContext& context, const Signals& signals)
      : connection_(connection), context_(context), signals_(signals) {}

  // Whether a stream that ended so is worth another try: it broke, the experiment did not.
  static bool may_resume(Code code);

  // Waits a little longer each time, or until a signal arrives; then tries. True: `connection` is a
  // new one. An Error is one that waiting can't mend. Says on stderr once what is going on.
  Result<bool> try_again(const std::string& id);

  // What stands in the way, once, until a stream works again.
  void say(const Error& error);

  // A stream works again.
  void reset();

 private:
  Connection& connection_;
  const CommandContext& context_;
  const Signals& signals_;
  int64_t wait_ms_ = kWaitFirstMs;
  bool announced_ = false;
  std::string said_;   // what it last said to stand in the way

  static constexpr int64_t kWaitFirstMs = 50;
  static constexpr int64_t kWaitMaxMs = 2'000;
};

}  // namespace dtrain::cli
