// The keeper's end of `ctl`: the lines of launch_dir.h, in and out.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <string>
#include <string_view>

#include "runner/launch_dir.h"
#include "schema/result.h"

namespace dtrain::runner {

struct CtlRequest {
  enum class Verb { Start, Stop, Renew, Acked, Seen, Bye };
  Verb verb = Verb::Start;
  ReplicaId replica;    // of Stop and Acked
  uint64_t number = 0;  // grace_ms, contact_ms, or offset
};
// InvalidArgument for anything but a whole, well-formed line (without its '\n').
Result<CtlRequest> parse_ctl_line(std::string_view line);

// Who is at the other end of a Unix socket is this process's own user, or root.
bool is_own_user(int socket);

// Owner: Keeper. Thread: its loop. Promises: requests come in order, `seen` is handled inside. A
// line that doesn't parse closes the connection, nothing else.
class KeeperCtl {
 public:
  using Protocol = boost::asio::local::stream_protocol;
  KeeperCtl(boost::asio::io_context& loop, std::function<void(const CtlRequest&)> on_request);
  KeeperCtl(const KeeperCtl&) = delete;
  KeeperCtl& operator=(const KeeperCtl&) = delete;

  Status listen(const std::string& name);
  bool is_connected() const { return socket_.is_open(); }
  // The runner's connection ended, and no other has replaced it.
  std::function<void()> on_closed;
  // Tells the runner to look, once until it has answered.
  void changed();

 private:
  void accept();
  void accept_later();
  void read(uint64_t connection);
  bool take_lines();
  void close();

  std::function<void(const CtlRequest&)> on_request_;
  Protocol::acceptor acceptor_;
  Protocol::socket socket_;
  boost::asio::steady_timer retry_;
  uint64_t connection_ = 0;  // counts connections: a read of an older one is ignored
  std::string input_;
  bool told_ = false;   // `changed` was sent and not answered
  bool dirty_ = false;  // something changed since
};

}  // namespace dtrain::runner
