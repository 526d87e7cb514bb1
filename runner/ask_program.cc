#include "runner/ask_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <optional>
#include <utility>

#include "schema/clock.h"
#include "schema/fd.h"

namespace dtrain::runner {
namespace {

constexpr int kDiesMs = 1'000;
constexpr size_t kSaidBytesMax = 64 << 10;

// All that comes out of a pipe until it is closed; false: by the deadline it was not.
bool read_until(int64_t deadline_ms, int pipe, std::string& said) {
  while (said.size() < kSaidBytesMax) {
    const int64_t left_ms = deadline_ms - boottime_ms();
    if (left_ms <= 0) return false;
    pollfd readable{pipe, POLLIN, 0};
    if (::poll(&readable, 1, static_cast<int>(left_ms)) != 1) continue;
    char bytes[512];
    const ssize_t got = ::read(pipe, bytes, sizeof bytes);
    if (got > 0) said.append(bytes, static_cast<size_t>(got));
    if (got == 0) break;
  }
  return true;
}

}  // namespace

Result<Answer> ask_program(const std::vector<std::string>& argv, const Environment& env, int64_t limit_ms) {
  SpawnRequest request;
  request.argv = argv;
  request.env = env;
  auto answer = ask_program(std::move(request), limit_ms);
  if (answer.ok() || answer.error().code == Code::ResourceExhausted) return answer;
  return Error{Code::FailedPrecondition, answer.error().message, ""};
}

Result<Answer> ask_program(SpawnRequest request, int64_t limit_ms) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("run " + request.argv.front(), errno);
  const Fd output(ends[0]);
  Fd write_end(ends[1]);
  request.output_fd = write_end.get();
  request.die_with_parent = true;
  auto child = spawn(request);
  write_end.reset();
  if (!child.ok()) return std::move(child).error();
  Answer answer;
  const int64_t deadline_ms = boottime_ms() + limit_ms;
  const bool ended = read_until(deadline_ms, output.get(), answer.said);
  pollfd dead{child->pidfd.get(), POLLIN, 0};
  // Who has closed its output is about to end.
  if (ended) ::poll(&dead, 1, kDiesMs);
  ::kill(-child->pid, SIGKILL);  // with what it started: it leads a session
  ::poll(&dead, 1, kDiesMs);
  const std::optional<int> status = try_reap(*child);
  if (!ended) return Error{Code::FailedPrecondition, fmt::format("no answer in {} s", limit_ms / 1000), ""};
  while (answer.said.ends_with('\n')) answer.said.pop_back();
  answer.succeeded = status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
  return answer;
}

}  // namespace dtrain::runner
