#include "schema/own_log.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace dtrain {
namespace {

namespace fs = std::filesystem;

constexpr off_t kBytesMax = 20'000;
constexpr size_t kTimeBytes = 21;   // "2026-11-30T15:39:31Z "
constexpr size_t kLineBytes = kTimeBytes + 37;

struct Folder {
  fs::path path;
  Folder() {
    std::string name = fs::temp_directory_path() / "dtrain-log-XXXXXX";
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  fs::path log() const { return path / "some.log"; }
  fs::path older() const { return path / "some.log.1"; }
};

// A process whose standard error is the log; `lines` below 0: until it is killed.
pid_t start_writer(const fs::path& log, int nth, int lines) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  dup2(fd, STDOUT_FILENO);
  dup2(fd, STDERR_FILENO);
  bound_own_log(log, kBytesMax);
  for (int i = 0; lines < 0 || i < lines; ++i) {
    std::fprintf(stderr, "writer %02d line %010d %s\n", nth, i, "of several");
  }
  _exit(0);
}

std::vector<std::string> lines_of(const fs::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST_CASE("a log of ours stays within twice its limit, and the newest lines are there") {
  const Folder folder;
  const pid_t pid = start_writer(folder.log(), 1, 10'000);
  int status = -1;
  REQUIRE(waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
  CHECK(fs::file_size(folder.log()) < kBytesMax + kLineBytes);
  CHECK(fs::file_size(folder.older()) < kBytesMax + kLineBytes);
  std::vector<std::string> lines = lines_of(folder.older());
  const size_t in_older = lines.size();
  for (auto& line : lines_of(folder.log())) lines.push_back(std::move(line));
  CHECK(in_older * kLineBytes >= static_cast<size_t>(kBytesMax) - kLineBytes);
  REQUIRE(!lines.empty());
  CHECK(lines.back().substr(kTimeBytes) == "writer 01 line 0000009999 of several");
  for (size_t i = 0; i < lines.size(); ++i) {  // and nothing between them is missing
    CHECK(lines[i].substr(kTimeBytes + 15, 10) == fmt::format("{:010}", 10'000 - lines.size() + i));
  }
}

TEST_CASE("several that write one log, some of them killed, keep within the limit together") {
  const Folder folder;
  std::vector<pid_t> doomed, others;
  for (int i = 0; i < 2; ++i) doomed.push_back(start_writer(folder.log(), i, -1));
  for (int i = 2; i < 5; ++i) others.push_back(start_writer(folder.log(), i, 5'000));
  for (const pid_t pid : others) {
    int status = -1;
    REQUIRE(waitpid(pid, &status, 0) == pid);
    CHECK(status == 0);
  }
  for (const pid_t pid : doomed) {
    kill(pid, SIGKILL);
    REQUIRE(waitpid(pid, nullptr, 0) == pid);
  }
  // One that comes later goes on where they are.
  const pid_t last = start_writer(folder.log(), 7, 1);
  REQUIRE(waitpid(last, nullptr, 0) == last);
  CHECK(lines_of(folder.log()).back().substr(kTimeBytes) == "writer 07 line 0000000000 of several");
  std::set<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder.path)) {
    files.insert(entry.path());
    // Each of them may be about to write when the file is full.
    CHECK(fs::file_size(entry.path()) <= kBytesMax + 6 * kLineBytes);
    for (const std::string& line : lines_of(entry.path())) {
      CHECK(line.substr(10, 1) == "T");
      CHECK(line.substr(kTimeBytes - 2, 9) == "Z writer ");
      CHECK(line.size() == kLineBytes - 1);
    }
  }
  CHECK(files == std::set<fs::path>{folder.log(), folder.older()});
}

TEST_CASE("what is no log of ours is left alone") {
  const Folder folder;
  const fs::path other = folder.path / "terminal";
  const pid_t pid = fork();
  if (pid == 0) {
    const int fd = open(other.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(fd, STDERR_FILENO);
    bound_own_log(folder.log(), 10);
    for (int i = 0; i < 10; ++i) std::fprintf(stderr, "a line of text\n");
    _exit(0);
  }
  REQUIRE(waitpid(pid, nullptr, 0) == pid);
  CHECK(lines_of(other).size() == 10);
  CHECK(!fs::exists(folder.log()));
}

}  // namespace
}  // namespace dtrain
