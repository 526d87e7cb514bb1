// A worker's connection to one server: requests go out in order, the answers come back to where they
// belong; when the server is lost it is looked for, and the requests begin anew.
#pragma once

#include <utility>
#include <vector>

#include "engine/data/data_facts.h"
#include "engine/layout.h"
#include "engine/server/frame.h"

namespace dtrain::engine::server {

// What a worker says of itself to each server.
struct Introduction {
  uint64_t job = 0;  // server_job()
  DataFacts data = {};
  uint64_t layout = 0;
  uint64_t generation = 0;  // worker 0 chooses it; the others learn it
  uint64_t attempt = 0;
  int rank = 0;
  uint64_t threads = 1;
  bool local_sockets = true;
};

struct Request {
  Frame frame;
  const void* payload = nullptr;  // of frame.payload bytes
  bool answered = true;
};

// Owner: ServerClient. Thread: whoever holds its mutex.
class Lane {
 public:
  Lane(std::string address, std::string name, Range range);

  // Connects and introduces, by the host's own socket if the server is on this host.
  // The deadline begins anew with each Wait. DeadlineExceeded names the server.
  Status connect(const Introduction& introduction, Deadline& deadline);
  bool connected() const { return static_cast<bool>(socket_); }
  void close() { socket_.close(); }

  // Requests to be sent again from the first when the server was lost before the last was answered.
  // `first`: those before it were answered already.
  void ask(std::vector<Request> requests, size_t first = 0);
  // An answer of Data ends the requests, wherever it comes.
  void data_to(float* target) { data_ = target; }

  bool done() const { return next_answer_ == requests_.size(); }
  // The next request follows when all before it that are answered were.
  bool writes() const { return next_ < requests_.size() && next_ <= next_answer_; }
  // What is possible at once. Unavailable: the server is lost; others are final.
  Status advance(bool readable, bool writable);
  // Since the last call.
  bool has_sent() { return std::exchange(has_sent_, false); }
  bool has_received() { return std::exchange(has_received_, false); }
  // Says that this worker lives, if that goes at once.
  Status beat(const Introduction& introduction);

  const Range& range() const { return range_; }
  const Socket& socket() const { return socket_; }
  const std::string& name() const { return name_; }
  // The Welcome answers what was asked, too.
  void take_welcome() {
    ask({});
    answer_ = welcome_;
  }
  // The last Welcome, and the last answer of each kind.
  const Frame& welcome() const { return welcome_; }
  const Frame& answer() const { return answer_; }
  const std::vector<double>& squares() const { return squares_; }
  uint64_t samples() const { return samples_; }
  bool has_squares() const { return has_squares_; }

 private:
  void start_at(size_t first);
  Status write();
  Status read();
  Status begin_answer();
  void finish_answer();

  std::string address_, name_;
  Range range_;
  Socket socket_;
  Frame welcome_, answer_, incoming_;
  std::vector<Request> requests_;
  size_t next_ = 0, sent_ = 0;  // the request being sent, and how much of it
  size_t next_answer_ = 0;
  size_t received_ = 0;  // of the answer
  float* data_ = nullptr;
  std::string text_;
  char* target_ = nullptr;  // of the answer's payload
  std::vector<double> squares_;
  uint64_t samples_ = 0;
  bool has_squares_ = false;
  bool has_sent_ = false, has_received_ = false;
};

}  // namespace dtrain::engine::server
