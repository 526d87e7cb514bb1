// What the launcher's agent and a worker of MPI say to each other: one TCP connection for each program that mpirun
// starts in a worker.
//
// The worker begins with a random challenge; the agent answers with its HMAC by the experiment's secret, and the
// command. Then frames go both ways. Blocking; both ends are single processes that have nothing else to do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "schema/result.h"

namespace dtrain::runner {

enum class MpiFrame : uint8_t {
  Challenge,   // worker: random bytes
  Answer,      // agent: HMAC-SHA256 of them
  Command,     // agent: for sh -c
  Input,       // agent: for its standard input; empty: that has ended
  Output,      // worker: of its standard output
  Errors,      // worker: of its standard error
  Ended,       // worker: its exit code, 0 to 255
};

inline constexpr uint32_t kMpiFrameBytesMax = 1 << 20;

Status write_frame(int fd, MpiFrame kind, std::string_view bytes);
// Unavailable: the other end is gone. InvalidArgument: it speaks something else.
struct MpiMessage {
  MpiFrame kind;
  std::string bytes;
};
Result<MpiMessage> read_frame(int fd);

// Each side's part of the beginning. PermissionDenied: the other one does not know the secret.
Status admit_agent(int fd, std::string_view secret);
Status greet_worker(int fd, std::string_view secret);

}  // namespace dtrain::runner
