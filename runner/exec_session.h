// A command beside a replica, between who sits before it and the keeper that runs it: its terminal or its pipes.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runner/launch_dir.h"
#include "runner/replica_session.h"
#include "schema/dtrain.pb.h"
#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::runner {

// Promises: whoever goes first, the peer or the command, takes the other along.
class ExecSession final : public ReplicaSession {
 public:
  ExecSession(boost::asio::io_context& loop, std::shared_ptr<ExecPeer> peer, std::function<void()> over);

  // `replica`: one of the launch.
  void start(const LaunchRecord& launch, const std::string& replica, const pb::ExecStart& command);

 private:
  using Descriptor = boost::asio::posix::stream_descriptor;
  // One of the two that its output comes by.
  struct Source {
    explicit Source(boost::asio::io_context& loop) : fd(loop) {}
    Descriptor fd;
    bool is_error = false;
    bool waits = false;
    size_t left_bytes = 0;   // once the command has ended: what it has left in a pipe
  };

  std::shared_ptr<ExecSession> shared() { return std::static_pointer_cast<ExecSession>(shared_from_this()); }
  Status begin(const LaunchRecord& launch, const std::string& replica, const pb::ExecStart& command);
  // What the command gets of them.
  Result<std::vector<Fd>> make_terminal(const pb::ExecStart& command);
  Result<std::vector<Fd>> make_pipes();
  void hear_keeper();
  bool take_news();
  void on_input(const pb::ExecInput& message) override;
  bool is_mid_line() const;
  void write_input();
  void end_input();
  void read_output(Source& source);
  bool read_once(Source& source);
  void on_command_ended(const pb::ExecEnded& ended);
  void read_rest();
  void await_last_words();
  void close_source(Source& source);
  void close() override;

  Descriptor keeper_;
  bool on_terminal_ = false;   // then input and output are that
  Descriptor input_;
  Source output_, errors_;
  boost::asio::steady_timer last_words_;
  bool writes_ = false;
  bool input_ends_ = false;
  bool mid_line_ = false;   // what the command took last has no newline at its end
  bool started_ = false;
  std::optional<pb::ExecEnded> ended_;  // the command has: said once its output is
};

}  // namespace dtrain::runner
