// No wall clock in any decision: who asks for it is listed here, with what for. Somebody may set it at any
// time, so it may be shown, and it may age what has ended; what runs never depends on it.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

namespace {

namespace fs = std::filesystem;

const std::map<std::string, std::string> kMayAsk = {
    {"cli/kill.cc", "shown"},
    {"cli/logs.cc", "--since, as typed"},
    {"cli/view.cc", "shown"},
    {"daemon/client_api.cc", "shown"},
    {"daemon/daemon_main.cc", "shown: when it began"},
    {"daemon/pruner.cc", "the age of what has ended"},
    {"daemon/scheduler.cc", "shown: when it was submitted and changed its state"},
    {"engine/formats/event_file.cc", "shown by TensorBoard: when a value was written"},
    {"runner/held_launch.cc", "shown: when it ended"},
    {"runner/kept_replica.cc", "shown: when it began, printed and ended"},
    {"runner/lost_keeper.cc", "shown: when it ended"},
    {"runner/agent.cc", "whether ages by it may be believed"},
    {"runner/carried_outputs.cc", "compared with the times of files: which rest, and the age of what is left"},
    {"runner/cleanup.cc", "the age of what replicas left behind"},
    {"runner/probe_line.cc", "measured: how far apart the clocks of two hosts are"},
    {"runner/usage.cc", "shown: cpu since the start"},
    {"schema/clock.cc", "the clock"},
    {"schema/clock.h", "the clock"},
    {"schema/own_log.cc", "shown: when a line was said"},
    {"schema/stat_cache.cc", "compared with the times that a file system gives"},
};

// A call of unix_ms(), not a message's field of that name.
bool calls_unix_ms(const std::string& line) {
  for (size_t at = line.find("unix_ms()"); at != std::string::npos; at = line.find("unix_ms()", at + 1)) {
    const char before = at == 0 ? ' ' : line[at - 1];
    if (before != '_' && before != '.' && before != '>') return true;
  }
  return false;
}

bool asks(const std::string& line) {
  if (calls_unix_ms(line)) return true;
  for (const char* word : {"system_clock::now", "gettimeofday", "CLOCK_REALTIME", "time(nullptr)"}) {
    if (line.find(word) != std::string::npos) return true;
  }
  return false;
}

TEST_CASE("who asks the wall clock is known") {
  for (const std::string folder : {"schema", "cli", "daemon", "runner", "engine"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(SOURCE_DIR) / folder)) {
      const std::string extension = entry.path().extension().string();
      if (extension != ".cc" && extension != ".h" && extension != ".cu") continue;
      const std::string file = fs::relative(entry.path(), SOURCE_DIR).string();
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) {
        if (asks(line)) CHECK_MESSAGE(kMayAsk.contains(file), file << ": " << line);
      }
    }
  }
}

}  // namespace
