#include "cli/listen_key.h"

#include <fmt/format.h>

#include <filesystem>

#include "schema/config.h"
#include "schema/small_file.h"

namespace dtrain::cli {

Result<bool> add_listen_key(const Home& home, const std::string& endpoint) {
  const std::string key = fmt::format("listen: '{}'\n", endpoint);
  if (!parse_config(key, "--listen").ok()) {
    return Error{Code::InvalidArgument, fmt::format("--listen: '{}' is not ADDRESS:PORT", endpoint),
                 "an IP address of this machine and a port: 10.0.0.5:7077, or [fd00::5]:7077"};
  }
  TRY(const Config config, read_config(home));
  if (config.listen == endpoint) return false;
  const std::string path = home.config().string();
  if (!config.listen.empty()) {
    return Error{Code::FailedPrecondition, fmt::format("{} says `listen: {}`", path, config.listen),
                 "change it there, then dtrain daemon stop && dtrain daemon start"};
  }
  TRY(const auto before, read_file(home.config()));
  const bool line_ended = !before || before->empty() || before->ends_with('\n');
  const std::string line = (line_ended ? "" : "\n") + key;
  if (!parse_config(before.value_or("") + line, path).ok()) {   // `{...}` on one line, say
    return Error{Code::FailedPrecondition, fmt::format("a line can't be added to {}", path), "write `listen:` there by hand"};
  }
  std::error_code error;
  std::filesystem::create_directories(home.root, error);   // what can't be made can't be written to
  TRY(append_file(home.config(), line));
  return true;
}

}  // namespace dtrain::cli
