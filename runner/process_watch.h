// Being told of the end of a process instead of asking.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>

#include "runner/launch_dir.h"
#include "runner/process_identity.h"
#include "runner/process.h"
#include "schema/result.h"

namespace dtrain::runner {

// ProcessWatch calls `gone` once when a process has ended, child of ours or not.
// Owner: KeeperGuard. Thread: loop. Destroying it makes no call any more; a child is still reaped.
class ProcessWatch {
 public:
  // pid -1: not a child of ours, only its pidfd is looked at.
  static std::unique_ptr<ProcessWatch> of(boost::asio::io_context& loop, Child child,
                                          std::function<void()> gone);
  // NotFound when it is gone already.
  static Result<std::unique_ptr<ProcessWatch>> of(boost::asio::io_context& loop,
                                                  const ProcessIdentity& process,
                                                  std::function<void()> gone);
  ~ProcessWatch();
  void signal(int number) const;
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

 private:
  struct Waiting;
  explicit ProcessWatch(std::shared_ptr<Waiting> waiting);
  std::shared_ptr<Waiting> waiting_;  // shared with the wait in flight
};

}  // namespace dtrain::runner
