// The processes of a gang as real processes, so that one can be killed.
#pragma once

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "gangs.h"

namespace dtrain::engine {

// body(gang) in a process each; what each returned, or "" if it was killed. A process that stops
// itself is killed once all others have ended.
inline std::vector<std::string> forked(const Cast& cast,
                                       const std::function<std::string(Gang&)>& body) {
  Ports ports(cast);
  const size_t count = cast.threads.size();
  std::vector<pid_t> pids;
  std::vector<Fd> outputs;
  for (size_t i = 0; i < count; ++i) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    outputs.emplace_back(ends[0]);
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid > 0) {
      ::close(ends[1]);
      pids.push_back(pid);
      continue;
    }
    Listener listener = std::move(ports.listeners[i]);
    ports.listeners.clear();
    std::string text;
    {
      auto gang =
          meet(ports.attendances[i], Deadline::after(kPatience_seconds), std::move(listener));
      text = gang.ok() ? body(**gang) : "did not meet: " + gang.error().message;
      // Before the gang goes: others end because of this one, and may be faster to say so.
      if (::write(ends[1], text.data(), text.size()) < 0) ::_exit(1);
    }
    ::_exit(0);
  }
  ports.listeners.clear();
  std::vector<std::string> texts(count);
  size_t stopped = count;
  for (size_t i = 0; i < count; ++i) {
    int status = 0;
    REQUIRE(::waitpid(pids[i], &status, WUNTRACED) == pids[i]);
    if (WIFSTOPPED(status)) {
      stopped = i;
    } else if (WIFEXITED(status)) {
      char buffer[4096];
      const ssize_t got = ::read(outputs[i].get(), buffer, sizeof(buffer));
      texts[i].assign(buffer, static_cast<size_t>(std::max<ssize_t>(got, 0)));
    }
  }
  if (stopped < count) {
    ::kill(pids[stopped], SIGKILL);
    ::waitpid(pids[stopped], nullptr, 0);
  }
  return texts;
}

}  // namespace dtrain::engine
