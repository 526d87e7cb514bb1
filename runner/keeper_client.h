// The runner's end of a keeper's `ctl` socket (launch_dir.h says what is spoken).
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runner/launch_dir.h"
#include "schema/result.h"

namespace dtrain::runner {

// KeeperClient wakes a keeper and is woken by it; what happened is read from the launch directory.
// Owner: HeldLaunch. Thread: loop. After close() or destruction no callback is made.
// Never: waits for the keeper; a line it can't write yet is queued.
class KeeperClient {
 public:
  struct Callbacks {
    std::function<void()> changed;  // already answered with `seen`: look at the directory now
    std::function<void()> closed;   // the keeper hung up; whether it died, its pidfd says
  };

  static Result<std::unique_ptr<KeeperClient>> connect(boost::asio::io_context& loop,
                                                       const std::string& ctl,
                                                       Callbacks callbacks);
  ~KeeperClient();
  KeeperClient(const KeeperClient&) = delete;
  KeeperClient& operator=(const KeeperClient&) = delete;

  void start(int64_t contact_ms);
  void stop(const ReplicaId& replica, int64_t grace_ms);
  void renew(int64_t contact_ms);
  void acked(const ReplicaId& replica, uint64_t offset);
  void bye() { send("bye\n"); }

 private:
  struct Session;
  explicit KeeperClient(std::shared_ptr<Session> session) : session_(std::move(session)) {}
  void send(std::string line);

  std::shared_ptr<Session> session_;  // shared with the operations in flight
};

}  // namespace dtrain::runner
