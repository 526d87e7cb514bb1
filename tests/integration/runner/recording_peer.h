// An ExecPeer for tests: keeps what it is told, and takes output only when the test says so.
#pragma once

#include <optional>
#include <string>

#include "runner/exec_peer.h"

namespace dtrain::runner {

class RecordingPeer final : public ExecPeer {
 public:
  void send(pb::ExecOutput message) override {
    if (message.has_started()) started = true;
    if (message.has_output()) output += message.output();
    if (message.has_error()) errors += message.error();
    if (message.has_taken()) taken += message.taken();
    if (message.has_ended()) ended = message.ended();
    if (message.has_refused()) refused = message.refused().message();
  }
  void end() override { done = true; }

  bool started = false, done = false;
  std::string output, errors, refused;
  uint64_t taken = 0;
  std::optional<pb::ExecEnded> ended;
};

}  // namespace dtrain::runner
