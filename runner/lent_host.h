// A host that somebody lends for a while, as a job of a batch system does: its runner does not outstay its use.
//
// Owner: main. Thread: loop. Without a daemon for some minutes, and with nothing of one here, it ends. Told to end, it
// first has the daemon end in order what is here.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>

#include "runner/agent.h"

namespace dtrain::runner {

class LentHost {
 public:
  LentHost(boost::asio::io_context& loop, Agent& agent, std::function<void()> end);
  LentHost(const LentHost&) = delete;
  LentHost& operator=(const LentHost&) = delete;

  void on_connected();
  void on_disconnected();   // and to begin with
  void leave();

 private:
  static constexpr std::chrono::minutes kPatience{10};

  Agent& agent_;
  const std::function<void()> end_;
  boost::asio::steady_timer patience_;
};

}  // namespace dtrain::runner
