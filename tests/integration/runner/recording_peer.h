// An ExecPeer for tests, which keeps what it is told and takes output only when the test says so, and a session with it:
// what exec's and port-forward's scenes have in common.
#pragma once

#include <doctest/doctest.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
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
    if (message.has_output_ends()) ++output_ends;
    if (message.has_ended()) ended = message.ended();
    if (message.has_refused()) refused = message.refused().message();
  }
  void end() override { done = true; }

  bool started = false, done = false;
  int output_ends = 0;   // so often
  std::string output, errors, refused;
  uint64_t taken = 0;
  std::optional<pb::ExecEnded> ended;
};

struct RecordedSession {
  void until(const std::function<bool()>& done) {
    while (!done()) REQUIRE(loop.run_one_for(std::chrono::seconds(30)) == 1);
  }
  void say(const pb::ExecInput& message) const { peer->on_input(message); }
  void type(const std::string& bytes) const {
    pb::ExecInput message;
    message.set_input(bytes);
    say(message);
  }
  void end_input() const {
    pb::ExecInput message;
    message.set_input_ends(true);
    say(message);
  }
  void take(uint64_t bytes) const {
    pb::ExecInput message;
    message.set_taken(bytes);
    say(message);
  }

  boost::asio::io_context loop{1};
  std::shared_ptr<RecordingPeer> peer = std::make_shared<RecordingPeer>();
  bool over = false;
};

}  // namespace dtrain::runner
