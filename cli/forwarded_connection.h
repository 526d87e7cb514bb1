// One connection that somebody made to a port of this machine, on its way to a port of a replica's host.
#pragma once

#include <poll.h>

#include <cstdint>
#include <optional>
#include <string>

#include "cli/forwarded_ports.h"
#include "cli/rpc.h"
#include "schema/dtrain.pb.h"
#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::cli {

// Owner: PortForward. Promises: never waits; holds no more than two kExecWindowBytes. Whoever ends first, what it said
// before reaches the other; one that breaks on the way is reset, so that nobody takes a part for the whole.
class ForwardedConnection {
 public:
  // `local`: non-blocking. `channel` must outlive this.
  ForwardedConnection(RpcChannel& channel, const std::string& id, uint16_t port, Fd local);
  ~ForwardedConnection();
  ForwardedConnection(const ForwardedConnection&) = delete;
  ForwardedConnection& operator=(const ForwardedConnection&) = delete;

  // What to wait for on the local side, and what to do then.
  pollfd wants() const;
  void handle(short happened);
  // Takes what has come in by the channel.
  void advance();

  bool is_over() const { return !local_; }
  // One side says nothing more, and may well be gone.
  bool is_half_over() const { return local_ended_ || shut_; }
  // Only the local side is still to end.
  bool is_left_alone() const { return shut_ && !call_ && local_; }
  void drop();
  void break_off();

  uint16_t port() const { return port_; }
  bool has_worked() const { return worked_; }   // something came back
  // Why it can't be made, or broke.
  const std::optional<Error>& trouble() const { return trouble_; }

 private:
  bool may_read() const;
  void read_local();
  void write_local();
  void break_off(Error why);
  Error not_made(const pb::ExecEnded& ended) const;

  const uint16_t port_;
  Fd local_;
  std::optional<RpcCall> call_;  // none: the other side is gone
  bool started_ = false;
  std::string host_name_;
  std::string waiting_;          // for the local side
  uint64_t untaken_ = 0;         // of what it said
  bool local_ended_ = false;     // it says nothing more
  bool output_ended_ = false;    // nothing more comes for it
  bool ended_ = false;           // and nothing that it says is heard
  bool shut_ = false;            // and it knows
  bool worked_ = false;
  std::optional<Error> trouble_;
};

}  // namespace dtrain::cli
