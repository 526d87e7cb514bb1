// Who waits for whom, and since when nothing has moved, told when asked. Where one is stuck, others wait for it, and
// others for these: when a wait is over those who wait say so, and the one who says nothing is to blame, unless somebody
// on the way there has sent or received data meanwhile. By datagrams to the ports that processes listen at, so past what
// lies unread on their connections. Where they don't pass nobody is known to wait.
// Owner: Gang. Thread: any. Never: waits.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <vector>

#include "engine/comm/deadline.h"
#include "engine/comm/socket.h"
#include "schema/fd.h"

namespace dtrain::engine {

class Asking {
 public:
  // `self` of so many processes, which `listener` is of; `key` is the gang's.
  Asking(int self, int processes, uint64_t key, const Listener& listener);

  // Before the first question: `process` listens at a port of the host that `connection` leads to.
  void add(int process, const Socket& connection, int port);

  using Clock = Deadline::Clock;
  // Data of an exchange has come or gone just now.
  void has_moved() { moved_ = Clock::now().time_since_epoch().count(); }
  Clock::time_point moved() const { return time_of(moved_); }  // last; long ago if never

  // Asks those who have not answered since then, and other threads of this process.
  void ask(Clock::time_point since);
  // Whom it comes down to that `process` is missed: itself, or at the end of those who wait; nobody of a circle. Of
  // anyone(): all others that have not answered. And when data moved last at one of those on the way.
  struct Behind {
    std::vector<int> silent = {};
    Clock::time_point moved = {};
  };
  Behind behind(int process, Clock::time_point since) const;

  // Takes in what has come. Whether somebody has asked, and has no answer.
  bool is_asked();
  // That this one waits for `process`, or for anyone(). Of itself: only since when nothing has moved.
  void answer(int process);
  int anyone() const { return static_cast<int>(others_.size()); }

 private:
  struct Other {
    sockaddr_storage address = {};
    socklen_t size = 0;  // 0: can't be reached
    std::atomic<bool> asks = false, is_told = false;  // of the last question: since when nothing has moved
    std::atomic<int> waits_for = -1;
    std::atomic<Clock::rep> answered = 0, moved = 0;  // when: it said for whom it waits; data moved there
    bool has_answered(Clock::time_point since) const { return time_of(answered) >= since; }
  };
  enum class What : uint32_t { Question = 1, Answer };
  struct Datagram {
    uint64_t key;
    What what;
    uint32_t from;
    uint32_t waits_for;
    uint32_t still_ms;  // since data moved; of an answer
  };

  static Clock::time_point time_of(Clock::rep count) { return Clock::time_point(Clock::duration(count)); }
  Behind anyone_behind(Clock::time_point since) const;
  static void is_asked_by(Other& other);
  static void has_answered(Other& other, int waits_for);
  void send(const Other& to, What what, int waits_for) const;
  void hear();

  const int self_;
  std::atomic<Clock::rep> moved_ = 0;
  const uint64_t key_;
  Fd fd_;  // none: the port is taken
  std::vector<Other> others_;  // by process
};

}  // namespace dtrain::engine
