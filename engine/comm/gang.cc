#include "engine/comm/gang.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "engine/comm/hello.h"

namespace dtrain::engine {
namespace {

constexpr size_t kLongestFailure = 1024;  // bytes
constexpr int kToSee_ms = 200;            // longer than anyone waits without looking
// A process of the gang says at once who it is.
constexpr double kHello_seconds = 1;

Error failure_of(const FrameHeader& header, std::string text) {
  return {static_cast<Code>(header.code), std::move(text), ""};
}

}  // namespace

const char* to_string(Op op) {
  switch (op) {
    case Op::Fail:
      return "failing";
    case Op::Leave:
      return "leaving";
    case Op::Gradients:
      return "gradients";
    case Op::Parameters:
      return "parameters";
    case Op::Small:
      return "values";
    case Op::Blocks:
      return "norms";
    case Op::Scatter:
      return "scatter";
    case Op::Gather:
      return "gather";
  }
  return "an unknown frame";
}

Gang::Gang(int self, uint64_t key, Listener listener, std::vector<std::unique_ptr<Peer>> peers)
    : self_(self), key_(key), peers_(std::move(peers)), asking_(self, size(), key, listener), listener_(std::move(listener)) {
  for (int process = 0; process < size(); ++process) {
    const auto at = parse_host_port(peer(process).address);
    if (peer(process).socket && at.ok()) asking_.add(process, peer(process).socket, at->port);
    const auto host = static_cast<size_t>(peer(process).host);
    hosts_.resize(std::max(hosts_.size(), host + 1));
    hosts_[host].push_back(process);
  }
  for (const auto& processes : hosts_) {
    for (const int process : processes) {
      peer(process).first = world();
      for (int thread = 0; thread < peer(process).threads; ++thread) {
        participants_.push_back({process, thread, peer(process).host});
      }
    }
  }
}

Gang::~Gang() {
  if (!failed_) tell_all(Op::Leave, Error{});
}

std::string Gang::participant_name(int index) const {
  const Participant& it = participant(index);
  const Peer& at = peer(it.process);
  return at.threads == 1 ? at.name : fmt::format("thread {} of {}", it.thread, at.name);
}

void Gang::fail(const Error& error) {
  if (failed_.exchange(true) || tell_all(Op::Fail, error)) return;
  // Those who could not be told will only see this process gone. Time to see first what it saw.
  ::poll(nullptr, 0, kToSee_ms);
}

bool Gang::tell_all(Op op, const Error& error) {
  const size_t length = std::min(error.message.size(), kLongestFailure);
  FrameHeader header;
  header.magic = frame_magic(key_);
  header.op = op;
  header.code = static_cast<uint16_t>(error.code);
  header.bytes = length;
  const std::array<iovec, 2> parts{
      iovec{&header, sizeof(header)},
      iovec{const_cast<char*>(error.message.data()), length},
  };
  bool all = true;
  for (const auto& other : peers_) {
    if (!other->socket) continue;
    // What does not go out at once does not go: this process is ending, and the end of the stream
    // tells the rest.
    const auto sent = other->in_frame ? Result<size_t>(size_t{0}) : other->socket.write_some(parts);
    all = all && sent.ok() && *sent == sizeof(header) + length;
  }
  return all;
}

std::optional<Gang::News> Gang::news_of(int process, bool ended) const {
  const Peer& at = peer(process);
  if (at.gone) return News{at.socket.gone(0)};
  FrameHeader header;
  std::array<char, sizeof(header) + kLongestFailure> buffer{};
  const ssize_t got = ::recv(at.socket.fd(), buffer.data(), buffer.size(), MSG_PEEK | MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (got <= 0) return News{at.socket.gone(got < 0 ? errno : 0)};
  // Of what was cut off the rest never comes.
  const auto unless_ended = [&] { return ended ? std::optional(News{at.socket.gone(0)}) : std::nullopt; };
  if (static_cast<size_t>(got) < sizeof(header)) return unless_ended();
  std::memcpy(&header, buffer.data(), sizeof(header));
  // Payload, or what another thread is about to read.
  if (header.magic != frame_magic(key_) || header.op != Op::Fail) return std::nullopt;
  if (header.bytes > static_cast<size_t>(got) - sizeof(header)) return unless_ended();
  return News{failure_of(header, std::string(buffer.data() + sizeof(header), header.bytes)), true};
}

Status Gang::look(const Moment& moment) const {
  std::vector<pollfd> sockets;
  std::vector<int> processes;
  for (int process = 0; process < size(); ++process) {
    if (!peer(process).socket) continue;
    sockets.push_back({peer(process).socket.fd(), POLLIN | POLLRDHUP, 0});
    processes.push_back(process);
  }
  if (sockets.empty() || ::poll(sockets.data(), sockets.size(), 0) <= 0) return ok();
  std::optional<Error> told, gone;
  std::string names;
  for (size_t i = 0; i < sockets.size(); ++i) {
    if (sockets[i].revents == 0) continue;
    std::optional<News> news = news_of(processes[i], (sockets[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0);
    if (!news) continue;
    if (!news->told) names += (names.empty() ? "" : ", ") + peer(processes[i]).name;
    if (news->told && !told) told = std::move(news->error);
    if (news->told) continue;
    if (gone) gone->message = names + " closed the connection";
    if (!gone) gone = std::move(news->error);
  }
  // Those that went without a word are why others, who left one, are ending.
  if (gone) return moment.during(std::move(*gone));
  if (told) return std::move(*told);
  return ok();
}

Error Gang::read_failure(int process, const FrameHeader& header) {
  Peer& at = peer(process);
  std::string text(std::min<size_t>(header.bytes, kLongestFailure), '\0');
  // It was written at once with its header.
  if (const auto status = at.socket.read(text.data(), text.size(), Deadline::after(1));
      !status.ok()) {
    return status.error();
  }
  return failure_of(header, std::move(text));
}

Result<Socket> Gang::connect_channel(int me, int other, Deadline deadline, int line) {
  const Peer& there = peer(participant(other).process);
  INVARIANT(participant(other).process != self_, "a channel leads to another process");
  if (participant(other).process > self_) {
    TRY(Socket socket, accept_channel({other, me, line}, deadline));
    socket.set_name(there.name);
    return socket;
  }
  TRY(Socket socket, Socket::connect(there.address, deadline));
  socket.set_name(there.name);
  Hello hello;
  hello.purpose = Purpose::Channel;
  hello.key = key_;
  hello.process = static_cast<uint32_t>(self_);
  hello.from = static_cast<uint64_t>(me);
  hello.to = static_cast<uint64_t>(other);
  hello.line = static_cast<uint32_t>(line);
  TRY(socket.write(&hello, sizeof(hello), deadline));
  return socket;
}

Result<Socket> Gang::accept_channel(Ends ends, Deadline deadline) {
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (auto found = arrived_.extract(ends)) return std::move(found.mapped());
      if (deadline.expired()) break;
      // In slices: another thread may be waiting for what arrives here, or the other way round.
      TRY(accept_next(Deadline::after(std::min(0.02, deadline.remaining_ms() / 1e3))));
    }
    TRY(look({0, "connect"}));
  }
  return Moment{0, "connect"}.during({Code::DeadlineExceeded,
                                      fmt::format("{} did not connect for {:g} s",
                                                  participant_name(ends.from), deadline.seconds()),
                                      "look at the log of that process"});
}

Status Gang::accept_next(Deadline deadline) {
  auto socket = listener_.accept(deadline);
  if (!socket.ok()) {
    if (socket.error().code == Code::DeadlineExceeded) return ok();
    return std::move(socket).error();
  }
  Hello hello;
  if (!socket->read(&hello, sizeof(hello), Deadline::after(kHello_seconds)).ok()) return ok();
  if (hello.magic != Hello::kMagic || hello.key != key_ || hello.purpose != Purpose::Channel) {
    return ok();
  }
  const auto size = static_cast<uint64_t>(world());
  if (hello.from >= size || hello.to >= size) return ok();
  arrived_[{static_cast<int>(hello.from), static_cast<int>(hello.to), static_cast<int>(hello.line)}] =
      std::move(*socket);
  return ok();
}

}  // namespace dtrain::engine
