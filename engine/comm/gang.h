// A Gang is all worker processes of a launch, after they have met: who they are, which share a
// host, a connection to each, and the news of one that fails or is lost. Owner: the engine's main.
// Thread: any may look, fail and ask; see Wire for the connections. Promises: a process that is
// gone, or that said why it ends, is an error naming it at the next look(). Never: waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/comm/asking.h"
#include "engine/comm/frame.h"
#include "engine/comm/socket.h"

namespace dtrain::engine {

// What a wait is for: "after step 17 (all-reduce)" ends its error, 17 being as many as were done.
struct Moment {
  int64_t step = 0;
  const char* doing = "";
  // The error of a wait, with what it was for.
  Error during(Error error) const {
    error.message += fmt::format(" after step {} ({})", step, doing);
    return error;
  }
};

// A thread that runs the model on its share of the batch. By host, then process, then thread.
struct Participant {
  int process = 0;
  int thread = 0;
  int host = 0;
};

// One process of the gang, as this one sees it.
struct Peer {
  std::string name;  // "worker 2 at 10.0.0.3:4000"
  std::string address;
  int threads = 1;
  int host = 0;
  int first = 0;  // participant
  std::string instructions;  // what it computes with
  Socket socket;  // none to itself
  Socket local;   // Unix, between the first process of a host and the others there
  std::atomic<bool> in_frame = false;  // being written to: no other frame may start
  std::atomic<bool> gone = false;      // seen by one who talked to it
};

class Gang {
 public:
  Gang(int self, uint64_t key, Listener listener, std::vector<std::unique_ptr<Peer>> peers);
  // Tells the others that this is not a loss, unless it failed.
  ~Gang();
  Gang(const Gang&) = delete;
  Gang& operator=(const Gang&) = delete;

  int self() const { return self_; }  // the process
  int size() const { return static_cast<int>(peers_.size()); }
  uint64_t key() const { return key_; }
  Peer& peer(int process) { return *peers_[static_cast<size_t>(process)]; }
  const Peer& peer(int process) const { return *peers_[static_cast<size_t>(process)]; }

  int world() const { return static_cast<int>(participants_.size()); }
  const Participant& participant(int index) const {
    return participants_[static_cast<size_t>(index)];
  }
  int first() const { return peer(self_).first; }  // participant of this process
  int threads() const { return peer(self_).threads; }

  int host() const { return peer(self_).host; }
  // The processes of each host in ascending order; hosts in the order of their first process.
  const std::vector<std::vector<int>>& hosts() const { return hosts_; }
  // "thread 1 of worker 2 at 10.0.0.3:4000".
  std::string participant_name(int index) const;

  // The error of one that failed, as it told it, or of those gone without a word at this moment.
  Status look(const Moment& moment) const;
  Asking& asking() { return asking_; }
  // Tells all others why this process ends, just before it does. The first call counts.
  void fail(const Error& error);
  // Reads the rest of a Fail frame of which the header has been read.
  Error read_failure(int process, const FrameHeader& header);

  // A connection of its own between a participant of this process and one of another; both ends ask
  // for it, in any order. A pair may have several, each a line of its own.
  Result<Socket> connect_channel(int me, int other, Deadline deadline, int line = 0);

 private:
  struct Ends {
    int from, to;  // participants: who connects, who accepts
    int line;
    auto operator<=>(const Ends&) const = default;
  };

  // Whether all could be told.
  bool tell_all(Op op, const Error& error);
  Result<Socket> accept_channel(Ends ends, Deadline deadline);
  Status accept_next(Deadline deadline);
  // Why a process ends or has ended; `told` if it said so itself.
  struct News {
    Error error;
    bool told = false;
  };
  // `ended`: nothing comes after what is there.
  std::optional<News> news_of(int process, bool ended) const;

  const int self_;
  const uint64_t key_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Participant> participants_;
  std::vector<std::vector<int>> hosts_;
  Asking asking_;
  std::atomic<bool> failed_ = false;

  std::mutex mutex_;
  // Guarded by mutex_.
  Listener listener_;
  std::map<Ends, Socket> arrived_;  // channels that nobody has asked for yet
};

}  // namespace dtrain::engine
