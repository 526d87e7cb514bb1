#include "cli/forwarded_connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "cli/connection.h"
#include "schema/exec_limits.h"

namespace dtrain::cli {

ForwardedConnection::ForwardedConnection(RpcChannel& channel, const std::string& id, uint16_t port, Fd local)
    : port_(port), local_(std::move(local)) {
  call_.emplace(channel, kExecMethod);
  pb::ExecInput first;
  first.mutable_forward()->set_id(id);
  first.mutable_forward()->set_port(port);
  first.mutable_forward()->set_hears_end(true);
  call_->write(first);
}

ForwardedConnection::~ForwardedConnection() {
  if (!is_over() && !is_left_alone()) break_off();
}

bool ForwardedConnection::may_read() const {
  if (is_left_alone()) return true;   // it is read to its end, or the close would take back what was written
  return call_ && started_ && !local_ended_ && untaken_ < kExecWindowBytes && call_->has_room(kExecPartBytes);
}

pollfd ForwardedConnection::wants() const {
  const int events = (may_read() ? POLLIN : 0) | (waiting_.empty() ? 0 : POLLOUT);
  // Shut on its own side as well it would be told again and again.
  return {shut_ && events == 0 ? -1 : local_.get(), static_cast<short>(events), 0};
}

void ForwardedConnection::handle(short happened) {
  if ((happened & (POLLERR | POLLNVAL)) != 0 || ((happened & POLLHUP) != 0 && !shut_)) return drop();
  if ((happened & (POLLIN | POLLHUP)) != 0 && may_read()) read_local();
  if ((happened & POLLOUT) != 0 && !is_over()) write_local();
}

void ForwardedConnection::read_local() {
  std::array<char, kExecPartBytes> bytes;
  const size_t most = is_left_alone() ? bytes.size() : std::min<uint64_t>(bytes.size(), kExecWindowBytes - untaken_);
  const ssize_t got = ::recv(local_.get(), bytes.data(), most, 0);
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got < 0 || (got == 0 && is_left_alone())) return drop();
  if (is_left_alone()) return;
  pb::ExecInput message;
  if (got == 0) {
    local_ended_ = true;
    message.set_input_ends(true);
  } else {
    message.set_input(bytes.data(), static_cast<size_t>(got));
    untaken_ += static_cast<uint64_t>(got);
  }
  call_->write(message);
}

void ForwardedConnection::advance() {
  pb::ExecOutput message;
  while (call_ && !ended_ && call_->take_arrived(message)) {
    if (message.has_started()) {
      started_ = true;
      host_name_ = message.started().host_name();
    } else if (message.has_output()) {
      worked_ = true;
      waiting_ += message.output();
    } else if (message.has_taken()) {
      untaken_ -= std::min(untaken_, message.taken());
    } else if (message.has_output_ends()) {
      worked_ = true;
      output_ended_ = true;
    } else if (message.has_ended()) {
      if (message.ended().code() == ECONNRESET) return break_off();   // by the server, which is its affair
      if (message.ended().code() != 0) return break_off(not_made(message.ended()));
      worked_ = true;
      ended_ = output_ended_ = true;
    }
  }
  if (call_ && !ended_) {
    if (const auto status = call_->ended()) {
      return break_off(status->ok() ? Error{Code::Aborted, "the daemon broke off a connection before its end", ""} : status->error());
    }
  }
  if (!is_over()) write_local();
}

void ForwardedConnection::write_local() {
  size_t gone = 0;
  while (gone < waiting_.size()) {
    const ssize_t wrote = ::send(local_.get(), waiting_.data() + gone, waiting_.size() - gone, MSG_NOSIGNAL);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) break;
    if (wrote < 0) return drop();
    gone += static_cast<size_t>(wrote);
  }
  waiting_.erase(0, gone);
  if (output_ended_ && waiting_.empty() && !std::exchange(shut_, true)) ::shutdown(local_.get(), SHUT_WR);
  if (ended_) {
    call_.reset();
    if (shut_ && local_ended_) drop();
  } else if (gone > 0 && call_) {
    pb::ExecInput message;
    message.set_taken(gone);
    call_->write(message);
  }
}

void ForwardedConnection::drop() {
  call_.reset();
  local_.reset();
}

void ForwardedConnection::break_off(Error why) {
  trouble_ = std::move(why);
  break_off();
}

void ForwardedConnection::break_off() {
  const linger at_once{1, 0};
  ::setsockopt(local_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  drop();
}

Error ForwardedConnection::not_made(const pb::ExecEnded& ended) const {
  if (ended.code() == ECONNREFUSED) return {Code::Unavailable, fmt::format("nothing listens on port {} of {}", port_, host_name_), ""};
  return {Code::Unavailable, fmt::format("port {} of {}: {}", port_, host_name_, ended.cause()), ""};
}

}  // namespace dtrain::cli
