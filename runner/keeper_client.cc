#include "runner/keeper_client.h"

#include <fmt/format.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <utility>

#include "runner/keeper.h"

namespace dtrain::runner {
namespace asio = boost::asio;
namespace {

constexpr std::chrono::milliseconds kAgainMs{200};

}  // namespace

// One connection. Without an owner it is closed, and waits for its operations to end.
struct KeeperClient::Session : std::enable_shared_from_this<KeeperClient::Session> {
  Session(asio::io_context& loop, KeeperClient* of) : socket(loop), owner(of) {}

  void read() {
    asio::async_read_until(socket, asio::dynamic_buffer(incoming, 4096), '\n',
                           [self = shared_from_this()](boost::system::error_code error, size_t) {
                             if (self->owner != nullptr) self->on_read(error);
                           });
  }

  void on_read(boost::system::error_code error) {
    if (error) return owner->on_hung_up();
    bool changed = false;
    for (size_t end = incoming.find('\n'); end != std::string::npos; end = incoming.find('\n')) {
      changed = changed || std::string_view(incoming).substr(0, end) == "changed";
      incoming.erase(0, end + 1);
    }
    if (changed) {
      // Answered before looking: a change after our look brings another `changed`.
      write("seen\n");
      owner->callbacks_.changed();
    }
    if (owner != nullptr) read();
  }

  void write(std::string_view line) {
    queued += line;
    if (writing.empty()) flush();
  }

  void flush() {
    writing = std::move(queued);
    queued.clear();
    asio::async_write(socket, asio::buffer(writing),
                      [self = shared_from_this()](boost::system::error_code error, size_t) {
                        self->writing.clear();
                        if (error || self->owner == nullptr || self->queued.empty()) return;
                        self->flush();
                      });
  }

  void close() {
    owner = nullptr;
    boost::system::error_code ignored;
    // What was queued but not yet written still matters (`bye`); the socket buffer takes it at once.
    if (writing.empty() && !queued.empty()) socket.write_some(asio::buffer(queued), ignored);
    socket.close(ignored);
  }

  asio::local::stream_protocol::socket socket;
  KeeperClient* owner;
  std::string incoming;
  std::string queued;
  std::string writing;
};

KeeperClient::KeeperClient(asio::io_context& loop, Callbacks callbacks)
    : loop_(loop), callbacks_(std::move(callbacks)), again_(loop) {}

KeeperClient::~KeeperClient() {
  close();
}

Status KeeperClient::open(const std::string& ctl) {
  ctl_ = ctl;
  TRY(Fd fd, connect_keeper(ctl));
  auto session = std::make_shared<Session>(loop_, this);
  boost::system::error_code error;
  session->socket.assign(asio::local::stream_protocol(), fd.get(), error);
  if (error) {
    return Error{Code::Internal, "use the keeper's socket: " + error.message(), ""};
  }
  fd.release();
  session->read();
  session_ = std::move(session);
  for (const auto& [replica, grace_ms] : stops_) say_stop(replica, grace_ms);
  if (started_) start(contact_ms_);
  if (said_bye_) say("bye\n");
  return ok();
}

void KeeperClient::open_later() {
  again_.expires_after(kAgainMs);
  again_.async_wait([this, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
    if (error || alive.expired() || open(ctl_).ok()) return;
    callbacks_.unreachable();
    open_later();
  });
}

void KeeperClient::on_hung_up() {
  close();
  if (!said_bye_) open_later();
}

void KeeperClient::close() {
  again_.cancel();
  if (session_) std::exchange(session_, nullptr)->close();
}

void KeeperClient::say(std::string_view line) {
  if (session_) session_->write(line);
}

void KeeperClient::say_stop(const ReplicaId& replica, int64_t grace_ms) {
  say(fmt::format("stop {} {}\n", to_string(replica), grace_ms));
}

void KeeperClient::stop(const ReplicaId& replica, int64_t grace_ms) {
  stops_[replica] = grace_ms;
  say_stop(replica, grace_ms);
}

void KeeperClient::start(int64_t contact_ms) {
  started_ = true;
  contact_ms_ = contact_ms;
  say(fmt::format("start {}\n", contact_ms));
}

void KeeperClient::renew(int64_t contact_ms) {
  contact_ms_ = contact_ms;
  say(fmt::format("renew {}\n", contact_ms));
}

void KeeperClient::acked(const ReplicaId& replica, uint64_t offset) {
  say(fmt::format("acked {} {}\n", to_string(replica), offset));
}

void KeeperClient::bye() {
  if (!std::exchange(said_bye_, true)) say("bye\n");
}

}  // namespace dtrain::runner
