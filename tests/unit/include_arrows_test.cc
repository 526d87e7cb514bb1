// Who may include whom. The arrows of README.md, as a test: a folder that reaches where it should not,
// or a pure file that meets the outside world, fails here with the line that does it.
#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Include {
  std::string folder;   // "daemon"
  std::string file;     // "daemon/store.cc"
  std::string target;   // "sqlite3.h", "schema/result.h"
};

std::vector<Include> includes_below(const std::string& folder) {
  std::vector<Include> found;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(SOURCE_DIR) / folder)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".cc" && extension != ".h" && extension != ".cu") continue;
    const std::string file = fs::relative(entry.path(), SOURCE_DIR).string();
    std::ifstream in(entry.path());
    for (std::string line; std::getline(in, line);) {
      if (line.rfind("#include", 0) != 0) continue;
      const size_t open = line.find_first_of("<\"");
      const size_t close = line.find_first_of(">\"", open + 1);
      if (close == std::string::npos) continue;
      found.push_back({folder, file, line.substr(open + 1, close - open - 1)});
    }
  }
  return found;
}

const std::vector<std::string> kFolders = {"schema", "cli", "daemon", "runner", "engine"};

bool starts_with(const std::string& text, const std::string& head) { return text.rfind(head, 0) == 0; }

bool is_pure(const std::string& file) {
  for (const char* part : {"daemon/model", "daemon/lifecycle", "daemon/queue", "daemon/room", "daemon/placement", "daemon/growth",
                           "daemon/preemption", "daemon/supposition", "daemon/dependencies", "daemon/set_rules", "daemon/failure_rules",
                           "daemon/quota", "daemon/fair_share", "daemon/claims", "daemon/placing_pass", "daemon/wait_reason", "daemon/waits_for",
                           "daemon/rare", "daemon/rights"}) {
    if (starts_with(file, part)) return true;
  }
  return false;
}

TEST_CASE("cli, daemon, runner and engine meet only in schema") {
  for (const std::string& folder : kFolders) {
    for (const Include& include : includes_below(folder)) {
      for (const std::string& other : kFolders) {
        if (other == folder || other == "schema" || !starts_with(include.target, other + "/")) continue;
        // main wires the one executable.
        if (include.file == "cli/main.cc") continue;
        FAIL_CHECK(include.file << " includes " << include.target);
      }
    }
  }
}

TEST_CASE("the pure core of the daemon knows no outside world") {
  const std::set<std::string> outside = {"chrono", "ctime",  "fstream", "filesystem", "random",
                                         "thread", "mutex",  "cstdio",  "iostream",   "unistd.h",
                                         "time.h", "atomic", "future",  "schema/clock.h"};
  const std::vector<std::string> families = {"boost/", "grpc", "sqlite3", "sys/", "google/",
                                             "schema/dtrain.", "nlohmann/"};
  size_t looked_at = 0;
  for (const Include& include : includes_below("daemon")) {
    if (!is_pure(include.file)) continue;
    ++looked_at;
    if (outside.contains(include.target)) FAIL_CHECK(include.file << " includes " << include.target);
    for (const std::string& family : families) {
      if (starts_with(include.target, family)) FAIL_CHECK(include.file << " includes " << include.target);
    }
    // Of the daemon, pure files include only pure files.
    if (starts_with(include.target, "daemon/") && !is_pure(include.target)) {
      FAIL_CHECK(include.file << " includes " << include.target);
    }
  }
  CHECK(looked_at > 20);
}

TEST_CASE("each heavy library is met in one file") {
  // family of headers -> the files that may include it
  const std::map<std::string, std::set<std::string>> homes = {
      {"sqlite3.h", {"daemon/sqlite.cc"}},
      {"boost/process", {"runner/process.cc"}},
      {"yaml-cpp/", {"schema/yaml_tree.cc"}},
      {"re2/", {"schema/line_pattern.cc"}},
      {"CLI/", {"cli/options.cc", "engine/main.cc", "engine/bench/commands.cc"}},
      {"zlib.h", {"engine/data/idx.cc"}},
      {"nccl.h", {"engine/cuda/nccl_communicator.cc"}},
      {"cublasLt.h", {"engine/cuda/cublas_gemm.cc"}},
  };
  for (const std::string& folder : kFolders) {
    for (const Include& include : includes_below(folder)) {
      for (const auto& [family, files] : homes) {
        if (starts_with(include.target, family) && !files.contains(include.file)) {
          FAIL_CHECK(include.file << " includes " << include.target);
        }
      }
    }
  }
}

}  // namespace
