// A connection to a port of this host, beside a replica that runs, for somebody elsewhere.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runner/replica_session.h"

namespace dtrain::runner {

// Promises: whoever of peer and server ends first still hears the other; a reset ends the session once all that the server
// said is sent. So does the server's end where the peer can't be told of it.
class ForwardSession final : public ReplicaSession {
 public:
  ForwardSession(boost::asio::io_context& loop, std::shared_ptr<ExecPeer> peer, std::function<void()> over);

  // To whoever listens there: on the loopback addresses, else on `own_address`: an IP address or a name of this host, or empty.
  // `hears_end`: the peer can be told that the server says nothing more.
  void start(uint16_t port, const std::string& own_address, bool hears_end);

 private:
  using Tcp = boost::asio::ip::tcp;

  std::shared_ptr<ForwardSession> shared() { return std::static_pointer_cast<ForwardSession>(shared_from_this()); }
  void connect();
  void resolve_own();
  void give_up();
  void on_input(const pb::ExecInput& message) override;
  void write_input();
  void read_output();
  bool read_once();
  // More is to be sent to the server, as far as is known.
  bool is_part() const { return !input_ends_ || !waiting_.empty(); }
  void end(int error);
  void close() override;

  Tcp::socket socket_;
  boost::asio::steady_timer patience_;   // with who neither answers nor refuses
  Tcp::resolver resolver_;
  std::string own_address_;              // empty: it is among places_
  std::vector<Tcp::endpoint> places_;
  size_t place_ = 0;                     // which of them is being tried
  int refused_ = 0;                      // the errno of the first that failed
  bool hears_end_ = false;
  bool connected_ = false;
  bool server_ended_ = false;
  bool writes_ = false, reads_ = false;  // is waiting to
  bool input_ends_ = false;
};

}  // namespace dtrain::runner
