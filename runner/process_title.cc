#include "runner/process_title.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "schema/small_file.h"

namespace dtrain::runner {
namespace {

struct Area {
  char* begin = nullptr;
  size_t size = 0;
};

// Fields 48 and 49 of /proc/self/stat: where the arguments begin and end. Fields count from the bracket
// that closes the second.
Area argument_area() {
  const std::string stat = read_small_file("/proc/self/stat").value_or("");
  size_t at = stat.rfind(')');
  uint64_t ends[2] = {};
  for (int field = 3; at != std::string::npos && field <= 49; ++field) {
    at = stat.find_first_of(' ', at + 1);
    if (at != std::string::npos && field >= 48) {
      ends[field - 48] = std::strtoull(stat.c_str() + at + 1, nullptr, 10);
    }
  }
  if (ends[0] == 0 || ends[1] <= ends[0]) return {};
  return {reinterpret_cast<char*>(ends[0]), ends[1] - ends[0]};
}

}  // namespace

void set_process_title(const std::vector<std::string>& words) {
  std::string title;
  for (const std::string& word : words) title.append(word).push_back('\0');
  const Area area = argument_area();
  if (area.begin == nullptr) return;
  const size_t shown = std::min(title.size(), area.size - 1);
  std::memcpy(area.begin, title.data(), shown);
  std::memset(area.begin + shown, 0, area.size - shown);
}

void set_process_name(const char* name) {
  ::prctl(PR_SET_NAME, name);
}

}  // namespace dtrain::runner
