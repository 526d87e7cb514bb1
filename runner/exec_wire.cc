#include "runner/exec_wire.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "runner/keeper_ctl.h"
#include "runner/launch_dir.h"
#include "schema/exec_limits.h"

namespace dtrain::runner {
namespace {

// An ExecFrame has more than its command: TERM, the replica's name.
constexpr size_t kPacketMax = kExecCommandBytesMax + (32 << 10);

struct Address {
  sockaddr_un name{};
  socklen_t size = 0;
};

Address address_of(const std::string& ctl) {
  Address address;
  address.name.sun_family = AF_UNIX;
  const std::string text = keeper_socket(ctl) + "-exec";
  INVARIANT(text.size() < sizeof address.name.sun_path, "the name of a keeper's socket is short");
  std::memcpy(address.name.sun_path, text.data(), text.size());
  address.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + text.size());
  return address;
}

Result<Fd> make_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return errno_error("a socket", errno);
  return fd;
}

}  // namespace

Result<Fd> listen_exec(const std::string& ctl) {
  TRY(Fd fd, make_socket());
  const Address address = address_of(ctl);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) != 0 || ::listen(fd.get(), 16) != 0) {
    return errno_error("listen for commands", errno);
  }
  return fd;
}

Result<Fd> connect_exec(const std::string& ctl) {
  TRY(Fd fd, make_socket());
  const Address address = address_of(ctl);
  const bool connected = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.name), address.size) == 0;
  // What nobody listens at, a stranger may.
  if (connected && is_own_user(fd.get())) return fd;
  if (connected || errno == ECONNREFUSED) {
    return Error{Code::FailedPrecondition, "who keeps it takes no commands: it was started by an older dtrain, or is ending",
                 "what is started from now on does"};
  }
  return errno_error("reach who keeps it", errno);
}

Status send_packet(int socket, std::string_view bytes, const std::vector<int>& descriptors) {
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kExecDescriptorsMax * sizeof(int))> control{};
  if (!descriptors.empty()) {
    INVARIANT(descriptors.size() <= kExecDescriptorsMax, "a command has three descriptors at most");
    const size_t size = descriptors.size() * sizeof(int);
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(header), descriptors.data(), size);
  }
  ssize_t sent;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return errno_error("tell of a command", errno);
  return ok();
}

pb::ExecNewsFrame refusal(const Error& why) {
  pb::ExecNewsFrame news;
  news.mutable_refused()->set_code(static_cast<uint32_t>(why.code));
  news.mutable_refused()->set_message(why.message);
  news.mutable_refused()->set_hint(why.hint);
  return news;
}

Error error_of(const pb::ExecNewsFrame::Refused& refused) {
  return {static_cast<Code>(refused.code()), refused.message(), refused.hint()};
}

Result<std::optional<ExecPacket>> receive_packet(int socket) {
  static std::array<char, kPacketMax> buffer;   // of the one thread
  ExecPacket packet;
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kExecDescriptorsMax * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got;
  int resets = 0;
  do {
    got = ::recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    // That it did not read all is told once, before what it has said.
  } while (got < 0 && (errno == EINTR || (errno == ECONNRESET && resets++ == 0)));
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return std::optional<ExecPacket>();
  if (got < 0 && errno != ECONNRESET) return errno_error("hear of a command", errno);
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      packet.descriptors.emplace_back(fd);
    }
  }
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return Error{Code::ResourceExhausted, "a command that is too long, or no descriptor is left for it", ""};
  }
  if (got > 0) packet.bytes.assign(buffer.data(), static_cast<size_t>(got));
  return std::optional<ExecPacket>(std::move(packet));
}

}  // namespace dtrain::runner
