#include "cli/dial.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string_view>

#include "cli/autostart.h"
#include "cli/commands.h"
#include "schema/write_all.h"

namespace dtrain::cli {

namespace {

// What there is. False: it has ended.
bool carry(int from, int to) {
  std::array<char, 64 << 10> bytes;
  const ssize_t got = ::read(from, bytes.data(), bytes.size());
  if (got < 0 && errno == EINTR) return true;
  return got > 0 && write_all(to, {bytes.data(), static_cast<size_t>(got)}) == 0;
}

void join(int daemon) {
  std::array<pollfd, 2> ends = {{{STDIN_FILENO, POLLIN, 0}, {daemon, POLLIN, 0}}};
  for (;;) {
    if (poll(ends.data(), ends.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return;
    }
    if (ends[0].revents != 0 && !carry(STDIN_FILENO, daemon)) return;
    if (ends[1].revents != 0 && !carry(daemon, STDOUT_FILENO)) return;
  }
}

Result<int> dial(bool starts, const CommandContext& context) {
  TRY(const Home home, home_from_environment());
  auto listener = find_listener(home);
  if (!listener.ok() && listener.error().code == Code::Unavailable && starts) {
    TRY(start_daemon(home, context.program, StartAs::Automatic));
    listener = find_listener(home);
  }
  if (!listener.ok()) return std::move(listener).error();
  if (write_all(STDOUT_FILENO, kDialled) == 0) join(listener->socket.get());
  return 0;
}

}  // namespace

Run declare_dial(Options& options, CommandContext& context) {
  auto starts = std::make_shared<bool>(false);
  options.flag("--start", *starts, "a daemon, if none runs");
  return [starts, &context] { return dial(*starts, context); };
}

}  // namespace dtrain::cli
