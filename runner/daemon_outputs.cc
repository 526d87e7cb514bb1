#include "runner/daemon_outputs.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "schema/quote.h"
#include "schema/small_file.h"

namespace dtrain::runner {

namespace {
constexpr const char* kNotThere = "is not there";
}

DaemonOutputs look_for_outputs(const pb::Launch& launch, std::chrono::milliseconds patience) {
  if (launch.output_mark_text().empty()) return {};
  const std::string mark = launch.output_mark(), folder = std::filesystem::path(mark).parent_path();
  const std::string trouble = looked_at_within(
      patience, folder, [mark, text = launch.output_mark_text(), output = launch.output_dir()]() -> std::string {
        const auto found = read_small_file(mark);
        if (!found || *found != text) return kNotThere;
        if (::faccessat(AT_FDCWD, output.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return {};
        return fmt::format("can't be written to: {}", std::strerror(errno));
      });
  if (trouble.empty()) return {};
  if (trouble == kNotThere) return {.are_here = false};
  return {.trouble = as_utf8(fmt::format("OUTPUT_DIR: the daemon's {} {}", folder, trouble))};
}

}  // namespace dtrain::runner
