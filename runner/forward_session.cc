#include "runner/forward_session.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <array>
#include <boost/asio/ip/address.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "schema/exec_limits.h"

namespace dtrain::runner {

namespace {

namespace ip = boost::asio::ip;
using ErrorCode = boost::system::error_code;

constexpr auto kConnectPatience = std::chrono::seconds(10);

}  // namespace

ForwardSession::ForwardSession(boost::asio::io_context& loop, std::shared_ptr<ExecPeer> peer, std::function<void()> over)
    : ReplicaSession(std::move(peer), std::move(over)), socket_(loop), patience_(loop), resolver_(loop) {}

void ForwardSession::start(uint16_t port, const std::string& own_address, bool hears_end) {
  hears_end_ = hears_end;
  hear_peer();
  pb::ExecOutput message;
  message.mutable_started();
  send(std::move(message));
  places_ = {{ip::address_v4::loopback(), port}, {ip::address_v6::loopback(), port}};
  own_address_ = own_address;
  patience_.expires_after(kConnectPatience);
  patience_.async_wait([self = std::weak_ptr(shared())](const ErrorCode& error) {
    const auto live = self.lock();
    if (!error && live && !live->is_over() && !live->connected_) live->give_up();
  });
  connect();
}

void ForwardSession::connect() {
  if (place_ == places_.size()) return own_address_.empty() ? give_up() : resolve_own();
  ErrorCode error;
  socket_.close(error);
  socket_.async_connect(places_[place_], [self = shared()](const ErrorCode& failed) {
    if (self->is_over()) return;
    if (failed) {
      if (self->refused_ == 0) self->refused_ = failed.value();
      ++self->place_;
      return self->connect();
    }
    self->connected_ = true;
    self->patience_.cancel();
    ErrorCode ignored;
    self->socket_.set_option(Tcp::no_delay(true), ignored);
    self->socket_.non_blocking(true, ignored);
    self->write_input();
    self->read_output();
  });
}

void ForwardSession::resolve_own() {
  const std::string port = fmt::format("{}", places_.front().port());
  resolver_.async_resolve(std::exchange(own_address_, ""), port, [self = shared()](const ErrorCode& failed, const auto& found) {
    if (self->is_over()) return;
    if (!failed) self->places_.insert(self->places_.end(), found.begin(), found.end());
    self->connect();
  });
}

void ForwardSession::give_up() { end(refused_ == 0 ? ETIMEDOUT : refused_); }

void ForwardSession::on_input(const pb::ExecInput& message) {
  if (message.has_input()) {
    if (add_input(message.input())) write_input();
  } else if (message.has_input_ends()) {
    input_ends_ = true;
    write_input();
  } else if (message.has_taken()) {
    output_taken(message.taken());
    read_output();
  }
}

void ForwardSession::write_input() {
  if (!connected_ || writes_) return;
  size_t gone = 0;
  while (gone < waiting_.size()) {
    const ssize_t wrote = ::send(socket_.native_handle(), waiting_.data() + gone, waiting_.size() - gone, MSG_NOSIGNAL);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) break;
    if (wrote < 0 && server_ended_) return end(0);
    gone = wrote < 0 ? waiting_.size() : gone + static_cast<size_t>(wrote);   // it hears nothing more, and may have said something
  }
  input_gone(gone);
  if (waiting_.empty()) {
    if (!input_ends_) return;
    if (server_ended_) return end(0);
    ErrorCode ignored;
    socket_.shutdown(Tcp::socket::shutdown_send, ignored);
    return;
  }
  writes_ = true;
  socket_.async_wait(Tcp::socket::wait_write, [self = shared()](const ErrorCode& error) {
    self->writes_ = false;
    if (!error && !self->is_over()) self->write_input();
  });
}

void ForwardSession::read_output() {
  if (!connected_ || server_ended_ || reads_ || !may_send_output()) return;
  reads_ = true;
  socket_.async_wait(Tcp::socket::wait_read, [self = shared()](const ErrorCode& error) {
    self->reads_ = false;
    if (error || self->is_over()) return;
    if (self->read_once()) self->read_output();
  });
}

// False: it has ended.
bool ForwardSession::read_once() {
  std::array<char, kExecPartBytes> bytes;
  const ssize_t got = ::recv(socket_.native_handle(), bytes.data(), bytes.size(), 0);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (got == 0 && hears_end_ && is_part()) {
    server_ended_ = true;
    pb::ExecOutput message;
    message.set_output_ends(true);
    send(std::move(message));
    return false;
  }
  if (got <= 0) {
    server_ended_ = true;
    end(got == 0 ? 0 : errno);
    return false;
  }
  pb::ExecOutput message;
  message.set_output(bytes.data(), static_cast<size_t>(got));
  output_sent(static_cast<size_t>(got));
  send(std::move(message));
  return true;
}

void ForwardSession::end(int error) {
  pb::ExecOutput message;
  message.mutable_ended()->set_code(error);
  if (error != 0) message.mutable_ended()->set_cause(std::strerror(error));
  end_with(std::move(message));
}

void ForwardSession::close() {
  patience_.cancel();
  resolver_.cancel();
  ErrorCode ignored;
  // Who was still to send something has gone: the server is not to take a part for all of it.
  const bool may_hear = connected_ && (!server_ended_ || hears_end_);
  if (may_hear && is_part()) socket_.set_option(Tcp::socket::linger(true, 0), ignored);
  socket_.close(ignored);
}

}  // namespace dtrain::runner
