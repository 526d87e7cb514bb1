// What a command beside a replica and a connection to a port of its host have in common: a peer at the other end, whose
// input comes by messages, and an end that takes the peer along.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runner/exec_peer.h"
#include "schema/dtrain.pb.h"
#include "schema/result.h"

namespace dtrain::runner {

// Owner: Agent, until `over` is called. Thread: loop. Promises: `over` once; when the peer goes, it is over; no more than two
// kExecWindowBytes of input and one of output, and what was read last, are in here.
class ReplicaSession : public std::enable_shared_from_this<ReplicaSession> {
 public:
  ReplicaSession(std::shared_ptr<ExecPeer> peer, std::function<void()> over);
  virtual ~ReplicaSession() = default;
  ReplicaSession(const ReplicaSession&) = delete;
  ReplicaSession& operator=(const ReplicaSession&) = delete;

  // Instead of anything that begins.
  void refuse(const Error& why);
  // The peer is told nothing more.
  void drop();

 protected:
  // Of a session that a shared_ptr has.
  void hear_peer();
  bool is_over() const { return !over_; }
  void send(pb::ExecOutput message) { peer_->send(std::move(message)); }
  // The last word.
  void end_with(pb::ExecOutput message);
  // The peer hears no reason.
  void finish();

  // False: the peer keeps no measure, and is left.
  bool add_input(const std::string& bytes);
  // So much of waiting_ is no more, taken or dropped.
  void input_gone(size_t bytes);
  std::string waiting_;   // input that was not taken

  bool may_send_output() const;
  void output_sent(size_t bytes) { untaken_ += bytes; }
  void output_taken(uint64_t bytes);

 private:
  virtual void on_input(const pb::ExecInput& message) = 0;
  // It is over: its descriptors and timers go.
  virtual void close() = 0;

  const std::shared_ptr<ExecPeer> peer_;
  std::function<void()> over_;   // empty: it is over
  uint64_t untaken_ = 0;         // output that the peer has not taken
};

}  // namespace dtrain::runner
