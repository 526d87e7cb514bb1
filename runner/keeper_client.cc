#include "runner/keeper_client.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

#include "runner/keeper.h"

namespace dtrain::runner {
namespace asio = boost::asio;
struct KeeperClient::Session : std::enable_shared_from_this<KeeperClient::Session> {
  Session(asio::io_context& loop, Callbacks given) : socket(loop), callbacks(std::move(given)) {}

  void read() {
    asio::async_read_until(socket, asio::dynamic_buffer(incoming, 4096), '\n',
                           [self = shared_from_this()](boost::system::error_code error, size_t) {
                             self->on_read(error);
                           });
  }

  void on_read(boost::system::error_code error) {
    if (closed) return;
    if (error) {
      closed = true;
      auto tell = std::move(callbacks.closed);
      callbacks = {};
      if (tell) tell();
      return;
    }
    bool changed = false;
    for (size_t end = incoming.find('\n'); end != std::string::npos; end = incoming.find('\n')) {
      changed = changed || std::string_view(incoming).substr(0, end) == "changed";
      incoming.erase(0, end + 1);
    }
    if (changed) {
      // Answered before looking: a change after our look brings another `changed`.
      write("seen\n");
      if (callbacks.changed) callbacks.changed();
    }
    if (!closed) read();
  }

  void write(std::string line) {
    if (closed) return;
    queued += line;
    if (writing.empty()) flush();
  }

  void flush() {
    writing = std::move(queued);
    queued.clear();
    asio::async_write(socket, asio::buffer(writing),
                      [self = shared_from_this()](boost::system::error_code error, size_t) {
                        self->writing.clear();
                        if (!error && !self->closed && !self->queued.empty()) self->flush();
                      });
  }

  asio::local::stream_protocol::socket socket;
  Callbacks callbacks;
  std::string incoming;
  std::string queued;
  std::string writing;
  bool closed = false;
};

Result<std::unique_ptr<KeeperClient>> KeeperClient::connect(asio::io_context& loop,
                                                            const std::string& ctl,
                                                            Callbacks callbacks) {
  TRY(Fd fd, connect_keeper(ctl));
  auto session = std::make_shared<Session>(loop, std::move(callbacks));
  boost::system::error_code error;
  session->socket.assign(asio::local::stream_protocol(), fd.get(), error);
  if (error) {
    return Error{Code::Internal, "use the keeper's socket: " + error.message(), ""};
  }
  fd.release();
  session->read();
  return std::unique_ptr<KeeperClient>(new KeeperClient(std::move(session)));
}

KeeperClient::~KeeperClient() {
  session_->closed = true;
  session_->callbacks = {};
  boost::system::error_code ignored;
  // What was queued but not yet written still matters (`bye`); the socket buffer takes it at once.
  if (session_->writing.empty() && !session_->queued.empty()) {
    session_->socket.write_some(asio::buffer(session_->queued), ignored);
  }
  session_->socket.close(ignored);
}

void KeeperClient::send(std::string line) {
  session_->write(std::move(line));
}

void KeeperClient::stop(const ReplicaId& replica, int64_t grace_ms) {
  send(fmt::format("stop {} {}\n", to_string(replica), grace_ms));
}

void KeeperClient::start(int64_t contact_ms) {
  send(fmt::format("start {}\n", contact_ms));
}

void KeeperClient::renew(int64_t contact_ms) {
  send(fmt::format("renew {}\n", contact_ms));
}

void KeeperClient::acked(const ReplicaId& replica, uint64_t offset) {
  send(fmt::format("acked {} {}\n", to_string(replica), offset));
}

}  // namespace dtrain::runner
