// Commands beside the replicas of a keeper: it is their parent too, so that nothing of them outlives its replica.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "runner/kept_replica.h"
#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::runner {

// Owner: Keeper. Thread: its loop. Promises: what a command does, or its other end says, never matters to a replica; a
// command that can't begin, for a file system that hangs, holds nothing up.
class KeeperExec {
 public:
  // `key`: the launch's. `find` gives null for a replica that is not of this keeper.
  KeeperExec(boost::asio::io_context& loop, std::string key, std::function<KeptReplica*(const ReplicaId&)> find);
  ~KeeperExec();
  KeeperExec(const KeeperExec&) = delete;
  KeeperExec& operator=(const KeeperExec&) = delete;

  Status listen(const std::string& ctl);
  // A child of the keeper was reaped; it may be none of these.
  void on_exit(pid_t pid, int wait_status);
  // Replicas' main processes may have ended: who looks at one of these leaves with it, and is not waited for.
  void hang_up_orphaned();

 private:
  class Command;
  void accept();
  void take(Fd socket);
  void accept_later();

  boost::asio::io_context& loop_;
  const std::string key_;
  const std::function<KeptReplica*(const ReplicaId&)> find_;
  boost::asio::posix::stream_descriptor listener_;
  boost::asio::steady_timer retry_;
  std::set<std::shared_ptr<Command>> commands_;
};

}  // namespace dtrain::runner
