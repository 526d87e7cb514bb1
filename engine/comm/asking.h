// Who waits for whom, told when asked. Where one is stuck, others wait for it, and others for these: when a wait is over
// those who wait say so, and the one who says nothing is to blame. By datagrams to the ports that processes listen at,
// so past what lies unread on their connections. Where they don't pass nobody is known to wait.
// Owner: Gang. Thread: any. Never: waits.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/comm/socket.h"
#include "schema/fd.h"

namespace dtrain::engine {

class Asking {
 public:
  // `self` of so many processes, which `listener` is of; `key` is the gang's.
  Asking(int self, int processes, uint64_t key, const Listener& listener);

  // Before the first question: `process` listens at a port of the host that `connection` leads to.
  void add(int process, const Socket& connection, int port);

  // Asks those who have not answered.
  void ask();
  // Whom it comes down to that `process` is missed: itself, or at the end of those who wait; nobody of a circle. Of
  // anyone(): all others that have not answered.
  std::vector<int> silent_behind(int process) const;

  // Takes in what has come. Whether somebody has asked, and has no answer.
  bool is_asked();
  // That this one waits for `process`, or for anyone().
  void answer(int process);
  int anyone() const { return static_cast<int>(others_.size()); }

 private:
  struct Other {
    sockaddr_storage address = {};
    socklen_t size = 0;  // 0: can't be reached
    std::atomic<bool> asks = false;
    std::atomic<int> waits_for = -1;
  };
  enum class What : uint32_t { Question = 1, Answer };
  struct Datagram {
    uint64_t key;
    What what;
    uint32_t from;
    uint32_t waits_for;
    uint32_t reserved;
  };

  std::vector<int> silent() const;
  void send(const Other& to, What what, int waits_for) const;
  void hear();

  const int self_;
  const uint64_t key_;
  Fd fd_;  // none: the port is taken
  std::vector<Other> others_;  // by process
};

}  // namespace dtrain::engine
