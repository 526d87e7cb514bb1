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

#include "runner/exec_peer.h"
#include "runner/launch_dir.h"
#include "schema/dtrain.pb.h"
#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::runner {

// Owner: Agent, until `over` is called. Thread: loop. Promises: `over` once; whoever goes first, the peer or the command,
// takes the other along; no more than two kExecWindowBytes are in here for either.
class ExecSession : public std::enable_shared_from_this<ExecSession> {
 public:
  ExecSession(boost::asio::io_context& loop, std::shared_ptr<ExecPeer> peer, std::function<void()> over);
  ~ExecSession();
  ExecSession(const ExecSession&) = delete;
  ExecSession& operator=(const ExecSession&) = delete;

  // `replica`: one of the launch.
  void start(const LaunchRecord& launch, const std::string& replica, const pb::ExecStart& command);
  void refuse(const Error& why);
  // The peer is told nothing more.
  void drop();

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

  Status begin(const LaunchRecord& launch, const std::string& replica, const pb::ExecStart& command);
  // What the command gets of them.
  Result<std::vector<Fd>> make_terminal(const pb::ExecStart& command);
  Result<std::vector<Fd>> make_pipes();
  void hear_keeper();
  bool take_news();
  void on_input(const pb::ExecInput& message);
  bool is_mid_line() const;
  void write_input();
  void end_input();
  void read_output(Source& source);
  bool read_once(Source& source);
  void on_command_ended(const pb::ExecEnded& ended);
  void read_rest();
  void await_last_words();
  void close(Source& source);
  void finish();

  boost::asio::io_context& loop_;
  const std::shared_ptr<ExecPeer> peer_;
  std::function<void()> over_;   // empty: it is over
  Descriptor keeper_;
  bool on_terminal_ = false;   // then input and output are that
  Descriptor input_;
  Source output_, errors_;
  boost::asio::steady_timer last_words_;
  std::string waiting_;  // input that the command has not taken
  bool writes_ = false;
  bool input_ends_ = false;
  bool mid_line_ = false;   // what the command took last has no newline at its end
  bool started_ = false;
  uint64_t untaken_ = 0;  // output that the peer has not taken
  std::optional<pb::ExecEnded> ended_;  // the command has: said once its output is
};

}  // namespace dtrain::runner
