#include "engine/comm/gang.h"

#include <poll.h>

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

}  // namespace
}  // namespace dtrain::engine
