// A program of this machine that is run to its end in the background, for what it prints.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "schema/result.h"

namespace dtrain::daemon {

// What it printed, if it exited with 0. NotFound: there is no such program. Unavailable: it failed, and said the
// message's words on stderr, or did not end in time and was killed. ResourceExhausted: it printed more than anybody should.
using ProgramDone = std::function<void(Result<std::string>)>;

// `words[0]` is looked up in PATH. It gets `input` on stdin and the environment of this process, but for SQUEUE_*. `done` is called once,
// on the loop, and never before this returns. Thread: loop.
void run_program(boost::asio::io_context& loop, std::vector<std::string> words, const std::string& input,
                 std::chrono::milliseconds patience, ProgramDone done);

}  // namespace dtrain::daemon
