#include "runner/keeper_ctl.h"

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <cerrno>
#include <charconv>
#include <chrono>

#include "runner/keeper.h"
#include "schema/fd.h"

namespace dtrain::runner {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

constexpr size_t kLineBytesMax = 4096;
constexpr auto kAcceptRetry = std::chrono::milliseconds(200);

std::string_view next_word(std::string_view& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

bool parse_number(std::string_view word, uint64_t& number) {
  const char* end = word.data() + word.size();
  const auto parsed = std::from_chars(word.data(), end, number);
  return !word.empty() && parsed.ec == std::errc() && parsed.ptr == end;
}

}  // namespace

bool is_own_user(int socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == 0 || peer.uid == ::geteuid();
}

Result<CtlRequest> parse_ctl_line(std::string_view line) {
  const Error error{Code::InvalidArgument, fmt::format("not a ctl line: \"{}\"", line), ""};
  using Verb = CtlRequest::Verb;
  CtlRequest request;
  std::string_view rest = line;
  const std::string_view verb = next_word(rest);
  if (verb == "seen" || verb == "bye") {
    if (verb != line) return error;
    request.verb = verb == "seen" ? Verb::Seen : Verb::Bye;
    return request;
  }
  if (verb == "stop" || verb == "acked") {
    request.verb = verb == "stop" ? Verb::Stop : Verb::Acked;
    Result<ReplicaId> replica = parse_replica_id(next_word(rest));
    if (!replica.ok()) return error;
    request.replica = *replica;
  } else if (verb == "start" || verb == "renew") {
    request.verb = verb == "start" ? Verb::Start : Verb::Renew;
  } else {
    return error;
  }
  if (!parse_number(rest, request.number)) return error;
  return request;
}

KeeperCtl::KeeperCtl(asio::io_context& loop, std::function<void(const CtlRequest&)> on_request)
    : on_request_(std::move(on_request)), acceptor_(loop), socket_(loop), retry_(loop) {}

Status KeeperCtl::listen(const std::string& name) {
  ErrorCode error;
  acceptor_.open(Protocol(), error);
  if (!error) acceptor_.bind(Protocol::endpoint(keeper_socket(name)), error);
  if (!error) acceptor_.listen(4, error);
  if (error) return Error{Code::Internal, fmt::format("listen on ctl: {}", error.message()), ""};
  accept();
  return ok();
}

void KeeperCtl::accept() {
  acceptor_.async_accept([this](const ErrorCode& error, Protocol::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (error) return accept_later();
    if (is_own_user(socket.native_handle())) {
      ErrorCode ignored;
      socket.non_blocking(true, ignored);
      socket_ = std::move(socket);  // cancels what waits on the one before
      input_.clear();
      told_ = false;
      read(++connection_);
      changed();
    }
    accept();
  });
}

// Out of descriptors: who waits is still there, and would be found again at once.
void KeeperCtl::accept_later() {
  retry_.expires_after(kAcceptRetry);
  retry_.async_wait([this](const ErrorCode& error) {
    if (!error) accept();
  });
}

void KeeperCtl::read(uint64_t connection) {
  socket_.async_wait(Protocol::socket::wait_read, [this, connection](const ErrorCode& error) {
    if (error == asio::error::operation_aborted || connection != connection_) return;
    ErrorCode failed = error;
    char bytes[kLineBytesMax];
    size_t got = 0;
    if (!failed) got = socket_.read_some(asio::buffer(bytes), failed);
    if (failed == asio::error::would_block) return read(connection);
    if (failed) return close();
    input_.append(bytes, got);
    if (!take_lines()) return close();
    // A request may have replaced nothing, but `bye` may have stopped the loop: reading on is
    // harmless.
    read(connection);
  });
}

bool KeeperCtl::take_lines() {
  size_t at = 0;
  for (size_t end; (end = input_.find('\n', at)) != std::string::npos; at = end + 1) {
    const Result<CtlRequest> request =
        parse_ctl_line(std::string_view(input_).substr(at, end - at));
    if (!request.ok()) return false;
    if (request->verb != CtlRequest::Verb::Seen) {
      on_request_(*request);
      continue;
    }
    told_ = false;
    if (dirty_) changed();
  }
  input_.erase(0, at);
  return input_.size() < kLineBytesMax;
}

void KeeperCtl::changed() {
  dirty_ = true;
  if (told_ || !socket_.is_open()) return;
  // One short line is unanswered at most, so the socket's buffer always has room.
  constexpr std::string_view kLine = "changed\n";
  if (::send(socket_.native_handle(), kLine.data(), kLine.size(), MSG_NOSIGNAL | MSG_DONTWAIT) <
      0) {
    return;  // the runner is gone; the read sees it too
  }
  told_ = true;
  dirty_ = false;
}

void KeeperCtl::close() {
  ErrorCode ignored;
  socket_.close(ignored);
  ++connection_;
  if (on_closed) on_closed();
}

Result<Fd> connect_keeper(const std::string& ctl) {
  Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno_error("socket", errno);
  const KeeperCtl::Protocol::endpoint address(keeper_socket(ctl));
  if (::connect(fd.get(), address.data(), static_cast<socklen_t>(address.size())) != 0) {
    return errno_error("connect to the keeper", errno);
  }
  return fd;
}

}  // namespace dtrain::runner
