// The runner of the daemon's own machine: started with the daemon, started again when it dies.
//
// Owner: daemon main. Thread: loop. A runner that outlived an earlier daemon is left alone while it
// works: it holds the lock of its home and dials back by itself.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>

#include "schema/config.h"
#include "schema/home.h"
#include "schema/ids.h"
#include "schema/result.h"

namespace dtrain::daemon {

class LocalRunner {
 public:
  // It offers what `config` says of this host.
  LocalRunner(boost::asio::io_context& loop, const Home& home, const Config& config);
  LocalRunner(const LocalRunner&) = delete;
  LocalRunner& operator=(const LocalRunner&) = delete;

  void start();
  // TERM to the runner, also to one that an earlier daemon started; keepers and replicas go on. It is
  // not started again.
  void stop();
  // That host, if it is this machine's, hangs: its runner is killed and another started. Keepers and
  // replicas go on.
  void replace(const HostId& hung);
  // That host's runner has dialled in; its stream is gone, and it is to dial again.
  void connected(const HostId& host);
  void disconnected(const HostId& host);

  // It is in. Other hosts may come sooner.
  std::function<void()> on_joined;
  // Our runner ended, for whatever reason.
  std::function<void()> on_ended;

 private:
  void adopt();
  void start_later();
  void await_word();
  void wait_for_end();
  bool is_own(const HostId& host) const;
  void kill_hung();

  const Home home_;
  const Config config_;
  pid_t pid_ = -1;                                // -1: not ours, or not there
  boost::asio::posix::stream_descriptor ended_;   // a pidfd
  boost::asio::steady_timer again_;
  boost::asio::steady_timer word_;
  std::chrono::milliseconds patience_;            // with one that has no stream
  std::chrono::steady_clock::time_point started_;
  std::chrono::milliseconds backoff_{0};
  bool stopping_ = false;
};

}  // namespace dtrain::daemon
