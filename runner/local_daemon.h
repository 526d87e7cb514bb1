// The daemon of the runner's own machine: started again when it dies.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <memory>

#include "runner/process_watch.h"
#include "schema/home.h"

namespace dtrain::runner {

// The daemon looks after this runner and this runner after the daemon, so that parameter servers
// end with their experiment although nobody types a command. Owner: runner main. Thread: loop.
// Promises: starts nothing while somebody holds the daemon's lock, nor after `dtrain daemon stop`, nor in a home that was removed.
// Never: ends a daemon.
class LocalDaemon {
 public:
  LocalDaemon(boost::asio::io_context& loop, Home home);
  LocalDaemon(const LocalDaemon&) = delete;
  LocalDaemon& operator=(const LocalDaemon&) = delete;

  void lost();   // the stream to it ended
  void found();  // there is a stream again

 private:
  void look_later();
  void look();
  void start();

  boost::asio::io_context& loop_;
  const Home home_;
  boost::asio::steady_timer timer_;
  int64_t backoff_ms_;
  bool lost_ = false;
  std::unique_ptr<ProcessWatch> child_;  // until it ends: a child wants to be reaped
};

}  // namespace dtrain::runner
