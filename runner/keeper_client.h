// The runner's end of a keeper's `ctl` socket (launch_dir.h says what is spoken).
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "runner/launch_dir.h"
#include "schema/result.h"

namespace dtrain::runner {

// KeeperClient wakes a keeper and is woken by it; what happened is read from the launch directory.
// Owner: HeldLaunch. Thread: loop. After close() or destruction no callback is made.
// Promises: a keeper that hangs up is dialled again, and told again of what was asked for: stop(),
// start(), bye().
// Never: waits for the keeper; a line it can't write yet is queued.
class KeeperClient {
 public:
  struct Callbacks {
    std::function<void()> changed;      // already answered with `seen`: look at the directory now
    std::function<void()> unreachable;  // dialled in vain; whether it died, its pidfd says
  };

  KeeperClient(boost::asio::io_context& loop, Callbacks callbacks);
  ~KeeperClient();
  KeeperClient(const KeeperClient&) = delete;
  KeeperClient& operator=(const KeeperClient&) = delete;

  // An error: nobody listens there.
  Status open(const std::string& ctl);
  // The same again and again, until somebody does.
  void open_later();
  void close();

  // Before it is open, too.
  void stop(const ReplicaId& replica, int64_t grace_ms);
  // What stop() asked for: the grace.
  const std::map<ReplicaId, int64_t>& stops() const { return stops_; }
  void start(int64_t contact_ms);
  void renew(int64_t contact_ms);
  void acked(const ReplicaId& replica, uint64_t offset);
  void bye();

 private:
  struct Session;
  void on_hung_up();
  void say(std::string_view line);
  void say_stop(const ReplicaId& replica, int64_t grace_ms);

  boost::asio::io_context& loop_;
  const Callbacks callbacks_;
  std::string ctl_;
  std::shared_ptr<Session> session_;  // null: not connected
  boost::asio::steady_timer again_;
  std::map<ReplicaId, int64_t> stops_;
  bool started_ = false;
  int64_t contact_ms_ = 0;
  bool said_bye_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // a timer's handler may come after the end
};

}  // namespace dtrain::runner
