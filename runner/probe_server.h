// What answers the probes of other hosts: listens at this one's port and does what each that dials asks for.
//
// Owner: run_hosts_probe(). Threads: one that listens, and one for each that has dialled; calls may come from any.
// Promises: the destructor ends all of them, at once.
// Never: dials, or prints.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "runner/probe_line.h"

namespace dtrain::runner {

class ProbeServer {
 public:
  // `follows_orders(fd)`: what the other end says there is to be done is done, until it ends.
  ProbeServer(std::string experiment, int own, std::function<void(int fd)> follows_orders);
  ~ProbeServer();
  ProbeServer(const ProbeServer&) = delete;
  ProbeServer& operator=(const ProbeServer&) = delete;

  // Which port it is; 0 asks for one that is free.
  Result<int> listen(int port);

  // The connection by which one waits for orders. Nothing: it had not dialled by then.
  Fd take_worker(int index, ProbeTime deadline);
  // Whether somebody said that all is measured by then, or finish() was called.
  bool wait_for_finish(ProbeTime deadline);
  void finish();
  // Whether any of the others has dialled.
  bool was_reached();

 private:
  struct Visit {
    Fd fd;
    std::thread thread;
    bool over = false;
  };
  void accept_all();
  void serve(Fd& fd);
  void sweep();

  const std::string experiment_;
  const int own_;
  const std::function<void(int)> follows_orders_;
  Fd listener_;
  std::thread acceptor_;
  std::mutex mutex_;             // of all below
  std::condition_variable changed_;
  std::list<Visit> visits_;
  std::map<int, Fd> workers_;    // by index
  bool reached_ = false;
  bool finished_ = false;
  bool stopping_ = false;
};

}  // namespace dtrain::runner
