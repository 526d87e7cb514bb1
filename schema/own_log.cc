#include "schema/own_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <ctime>
#include <string>
#include <string_view>

#include "schema/clock.h"
#include "schema/fd.h"

namespace dtrain {

namespace {

struct OwnLog {
  std::string path;
  std::string older;
  off_t bytes_max = 0;
  bool is_in_a_line = false;
};

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// Standard error is the file of that name now.
bool is_ours(const std::string& path) {
  struct stat open_one, named;
  return fstat(STDERR_FILENO, &open_one) == 0 && stat(path.c_str(), &named) == 0 &&
         same_file(open_one, named);
}

// Two may do this at the same time: then the older file is lost early, and nothing else.
void make_room(const OwnLog& log) {
  struct stat open_one, named;
  if (fstat(STDERR_FILENO, &open_one) != 0) return;
  const bool current = stat(log.path.c_str(), &named) == 0 && same_file(open_one, named);
  if (current && open_one.st_size < log.bytes_max) return;
  if (current && rename(log.path.c_str(), log.older.c_str()) != 0) return;
  const Fd next(
      open(log.path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!next) return;  // the next line tries again
  struct stat output;
  const bool output_too = fstat(STDOUT_FILENO, &output) == 0 && same_file(output, open_one);
  dup2(next.get(), STDERR_FILENO);
  if (output_too) dup2(next.get(), STDOUT_FILENO);
}

// Each line behind when it was said.
std::string with_times(OwnLog& log, std::string_view text) {
  char time[32] = "";
  const auto now = static_cast<std::time_t>(unix_ms() / 1000);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::strftime(time, sizeof time, "%FT%TZ ", &parts);
  std::string out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const size_t size = end == std::string_view::npos ? text.size() : end + 1;
    if (!log.is_in_a_line) out += time;
    out += text.substr(0, size);
    log.is_in_a_line = end == std::string_view::npos;
    text.remove_prefix(size);
  }
  return out;
}

// As cookie_write_function_t: 0 is an error.
ssize_t write_lines(void* cookie, const char* bytes, size_t size) {
  OwnLog& log = *static_cast<OwnLog*>(cookie);
  make_room(log);
  const std::string text = with_times(log, {bytes, size});
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t some = ::write(STDERR_FILENO, text.data() + written, text.size() - written);
    if (some < 0 && errno == EINTR) continue;
    if (some <= 0) break;  // a full disk: what is lost is only talk
    written += static_cast<size_t>(some);
  }
  return static_cast<ssize_t>(written == text.size() ? size : 0);
}

}  // namespace

void bound_own_log(const std::filesystem::path& path, off_t bytes_max) {
  static OwnLog log;  // for as long as anybody may print
  log = {path.string(), path.string() + ".1", bytes_max, false};
  if (!is_ours(log.path) && !is_ours(log.older)) return;
  FILE* stream = fopencookie(&log, "a", {nullptr, write_lines, nullptr, nullptr});
  if (stream == nullptr) return;
  std::setvbuf(stream, nullptr, _IOLBF, BUFSIZ);
  std::fflush(stderr);
  stderr = stream;
}

}  // namespace dtrain
