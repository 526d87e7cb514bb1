#include "cli/key_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include "cli/new_file.h"

namespace dtrain::cli {

Result<std::string> key_file(const std::string& name, const std::string& typed) {
  const std::string file = typed.empty() ? name + ".key" : typed;
  if (::access(file.c_str(), F_OK) != 0) return file;
  return Error{Code::AlreadyExists, fmt::format("{} is there already", file), "-o FILE names another"};
}

Status write_key(const std::string& file, const std::string& key, const std::function<void()>& take_back) {
  Status written = write_new_file(file, key, 0600, "");
  if (!written.ok()) take_back();
  return written;
}

}  // namespace dtrain::cli
