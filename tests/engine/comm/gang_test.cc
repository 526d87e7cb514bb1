#include "engine/comm/gang.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "gangs.h"

namespace dtrain::engine {
namespace {

// What process 1 sees of process 0 once what that does shows as this event of their connection.
Status seen(const std::function<void(Gang&)>& does, short event) {
  Status seen = ok();
  with_gangs({.threads = {1, 1}}, [&](Gang& gang) {
    Socket& other = gang.peer(1 - gang.self()).socket;
    if (gang.self() == 0) {
      does(gang);
      CHECK(other.wait_readable(Deadline::after(kPatience_seconds)).ok());  // the other has looked, and leaves
      return;
    }
    pollfd polled{other.fd(), event, 0};
    CHECK(::poll(&polled, 1, static_cast<int>(kPatience_seconds * 1000)) == 1);
    seen = gang.look({3, "test"});
  });
  return seen;
}

FrameHeader failure(const Gang& gang, uint64_t bytes) {
  FrameHeader header;
  header.magic = frame_magic(gang.key());
  header.bytes = bytes;
  return header;
}

TEST_CASE("a failure whose text is longer than any is none, and no end of who reads it") {
  for (const uint64_t bytes : {uint64_t{5000}, ~uint64_t{0}, ~uint64_t{0} - sizeof(FrameHeader) + 1}) {
    CAPTURE(bytes);
    const Status status = seen(
        [&](Gang& gang) {
          const FrameHeader header = failure(gang, bytes);
          CHECK(gang.peer(1).socket.write(&header, sizeof(header), Deadline::after(kPatience_seconds)).ok());
        },
        POLLIN);
    CHECK(status.ok());
  }
}

TEST_CASE("who ends in the middle of saying why is gone") {
  for (const size_t sent : {sizeof(FrameHeader) - 1, sizeof(FrameHeader) + 5}) {
    CAPTURE(sent);
    const Status status = seen(
        [&](Gang& gang) {
          std::array<char, sizeof(FrameHeader) + 5> bytes{};
          const FrameHeader header = failure(gang, 6);
          std::copy_n(reinterpret_cast<const char*>(&header), sizeof(header), bytes.data());
          CHECK(gang.peer(1).socket.write(bytes.data(), sent, Deadline::after(kPatience_seconds)).ok());
          ::shutdown(gang.peer(1).socket.fd(), SHUT_WR);
        },
        POLLRDHUP);
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().message.find("worker 0 at 127.0.0.1:") == 0);
    CHECK(status.error().message.find(" closed the connection after step 3") != std::string::npos);
  }
}

TEST_CASE("who could not tell the others why it ends gives them time to see what it saw") {
  with_gangs({.threads = {1, 1}}, [&](Gang& gang) {
    if (gang.self() == 1) return;
    // Instead of the one to the other: of a Unix socket nothing goes on its way, so what is full stays so.
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    const Fd unread(ends[1]);
    Socket& other = gang.peer(1).socket;
    other = Socket(Fd(ends[0]), "worker 1");
    const std::vector<char> bytes(1 << 16);
    const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    auto sent = other.write_some(std::span(&part, 1));
    while (sent.ok() && *sent > 0) sent = other.write_some(std::span(&part, 1));
    const auto began = std::chrono::steady_clock::now();
    gang.fail({Code::Internal, "why", ""});
    CHECK(std::chrono::steady_clock::now() - began >= std::chrono::milliseconds(200));
  });
}

}  // namespace
}  // namespace dtrain::engine
