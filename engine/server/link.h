// A worker's connection as its server sees it: frames come in piece by piece, answers go out.
#pragma once

#include <chrono>
#include <deque>
#include <span>
#include <vector>

#include "engine/data/data_facts.h"
#include "engine/server/frame.h"

namespace dtrain::engine::server {

// What a worker that has asked is waiting for.
enum class WaitFor {
  Nothing,
  Start,  // worker 0 to fill the server
  Gate,   // slower workers
  Step,   // the other workers' gradients
  End,    // the other workers' last pushes
};

// Owner: the server. Thread: its loop. Never blocks.
class Link {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Link(Socket connected) : socket(std::move(connected)) {
    watch_peer(socket);
    since = heard = std::chrono::steady_clock::now();
  }

  // Reads what is there: at most the rest of the header, or of what `sink` has room for. 0: nothing.
  Result<size_t> read();
  bool has_header() const { return header_read_ == sizeof(Frame); }
  // The next header may come.
  void next_frame() { header_read_ = 0; }

  // Where the payload of its hello goes.
  std::span<char> room_of_data() { return {reinterpret_cast<char*>(&data), sizeof(data)}; }
  // It has what it waited for, and could say nothing until now.
  void end_wait() {
    wait = WaitFor::Nothing;
    heard = std::chrono::steady_clock::now();
  }
  // `bytes` must live until they are sent.
  void answer(Frame frame, std::span<const char> bytes = {});
  // With bytes of its own.
  void answer(Frame frame, std::vector<char> bytes);
  // Says why, once. What comes then is read and thrown away until the worker closes, for a connection
  // closed before that might take the words with it.
  void refuse(const Error& error);
  Status drain();
  // Sends what goes at once.
  Status flush();
  bool sending() const { return !answers_.empty(); }
  // Has not said who it is.
  bool is_stranger() const { return rank < 0 && wait == WaitFor::Nothing && !closing; }

  Socket socket;
  Frame in;                 // once there is a header
  uint64_t payload_left = 0;
  std::span<char> sink;     // where the next bytes of the payload go
  DataFacts data;           // that came with its hello
  bool closing = false;

  int rank = -1;  // once welcome
  bool left = false;  // and waited for by nobody any more
  WaitFor wait = WaitFor::Nothing;
  Frame asked;  // what it waits for
  Time since;  // of the wait, or of the connection
  Time told;   // that it takes longer
  Time heard;
  Time moved;  // some of what follows a header, either way

  // A push on its way: bytes not yet applied are [applied, filled).
  std::vector<float> staging;
  size_t applied = 0, filled = 0;
  int64_t block = 0;  // the next

 private:
  struct Answer {
    Frame frame;
    std::vector<char> own;
    std::span<const char> bytes;
    size_t sent = 0;
  };
  size_t header_read_ = 0;
  std::deque<Answer> answers_;
};

}  // namespace dtrain::engine::server
