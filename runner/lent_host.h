// A host that somebody lends for a while, as a job of a batch system does: its runner does not outstay its use.
//
// Owner: main. Thread: loop. Without a daemon for some minutes, and with nothing of one here, it ends. Told to end, it
// first has the daemon end in order what is here.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <functional>

namespace dtrain::runner {

class LentHost {
 public:
  struct Parts {
    std::function<size_t()> launches_held;
    std::function<void(std::function<void()> gone)> leave;   // calls `gone` once nothing is held
    std::function<void()> end;
  };
  LentHost(boost::asio::io_context& loop, std::chrono::milliseconds patience, Parts parts);
  LentHost(const LentHost&) = delete;
  LentHost& operator=(const LentHost&) = delete;

  void found();   // a daemon has answered
  void lost();    // there is none, as to begin with; said again, it has been so since the first time
  void leave();

 private:
  const std::chrono::milliseconds patience_;
  const Parts parts_;
  boost::asio::steady_timer alone_;
  bool is_alone_ = false;
};

}  // namespace dtrain::runner
