#include "schema/home.h"

#include <pwd.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdlib>
#include <string>
#include <system_error>

#include "schema/quote.h"

namespace dtrain {

namespace fs = std::filesystem;

namespace {

// sun_path holds the terminating NUL too.
constexpr size_t kSocketPathMaxBytes = sizeof(sockaddr_un::sun_path) - 1;
// gRPC takes an address for a URI, and for a list of them.
constexpr const char* kNotInAddresses = "%#?,";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string user_of(uid_t uid) {
  const passwd* entry = getpwuid(uid);
  return entry == nullptr ? fmt::format("user {}", uid) : fmt::format("{}", entry->pw_name);
}

// Creates `path` (0700) with its parents, and makes sure that it is a directory of ours.
Status own_directory(const fs::path& path) {
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  if (failed) {
    return errno_error(fmt::format("creating {}", path.parent_path().string()), failed.value());
  }
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return errno_error(fmt::format("creating {}", path.string()), errno);
  }
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    return errno_error(fmt::format("looking at {}", path.string()), errno);
  }
  if (!S_ISDIR(info.st_mode)) {
    return Error{Code::FailedPrecondition, fmt::format("{} is not a directory", path.string()),
                 "set DTRAIN_HOME to a directory of yours"};
  }
  if (info.st_uid != geteuid()) {
    return Error{Code::PermissionDenied,
                 fmt::format("{} belongs to {}", path.string(), user_of(info.st_uid)),
                 "set DTRAIN_HOME to a directory of yours"};
  }
  return ok();
}

// Not /tmp while there is a directory that only this user can reach: /run/user/<uid> is looked at
// even without the variable, so that a login shell and a cron job find the same daemon. What is in /tmp stays when the
// daemon stops: else somebody else could make it, and listen there for those that dial.
fs::path runtime_directory(const std::string& hash) {
  const fs::path named = environment("XDG_RUNTIME_DIR");
  if (named.is_absolute() && access(named.c_str(), W_OK) == 0) return named / ("dtrain-" + hash);
  const fs::path usual = fmt::format("/run/user/{}", geteuid());
  if (access(usual.c_str(), W_OK) == 0) return usual / ("dtrain-" + hash);
  return fmt::format("/tmp/dtrain-{}-{}", geteuid(), hash);
}

}  // namespace

Result<Home> open_home(const fs::path& root) {
  std::error_code failed;
  fs::path absolute = fs::absolute(root, failed);
  if (failed) return errno_error(fmt::format("resolving {}", root.string()), failed.value());
  absolute = absolute.lexically_normal();
  if (!absolute.has_filename()) absolute = absolute.parent_path();
  if (auto owned = own_directory(absolute); !owned.ok()) {
    Error error = std::move(owned).error();
    if (error.code == Code::Internal) error.code = Code::FailedPrecondition;   // below a file, read-only
    if (error.hint.empty()) error.hint = "set DTRAIN_HOME to a directory that you can write to";
    return error;
  }
  // One home has one socket, whatever way leads to it.
  const fs::path canonical = fs::canonical(absolute, failed);
  if (!failed) absolute = canonical;

  Home home{absolute, absolute / "socket"};
  const std::string& name = absolute.native();
  if (home.socket_path.native().size() > kSocketPathMaxBytes || name.find_first_of(kNotInAddresses) != name.npos) {
    const fs::path folder =
        runtime_directory(fmt::format("{:016x}", XXH3_64bits(name.data(), name.size())));
    TRY(own_directory(folder));
    home.socket_path = folder / "socket";
  }
  return home;
}

Result<Home> home_from_environment() {
  if (const fs::path named = environment("DTRAIN_HOME"); !named.empty()) {
    // Taken relative to wherever one stands, each directory would have a daemon of its own.
    if (named.is_relative()) {
      return Error{
          Code::InvalidArgument,
          fmt::format("DTRAIN_HOME is a relative path: {}", in_quotes(named.native())),
          "set it to an absolute one"};
    }
    return open_home(named);
  }
  // A relative XDG path is invalid and to be ignored, says its specification.
  if (const fs::path state = environment("XDG_STATE_HOME"); state.is_absolute()) {
    return open_home(state / "dtrain");
  }
  fs::path home = environment("HOME");
  if (!home.is_absolute()) {
    const passwd* entry = getpwuid(geteuid());
    if (entry == nullptr || entry->pw_dir == nullptr || *entry->pw_dir == '\0') {
      return Error{Code::FailedPrecondition, "neither DTRAIN_HOME nor HOME is set",
                   "set DTRAIN_HOME to a directory of yours"};
    }
    home = entry->pw_dir;
  }
  return open_home(home / ".local" / "state" / "dtrain");
}

}  // namespace dtrain
