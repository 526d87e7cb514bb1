#include "daemon/user_keys.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <sstream>

#include "schema/config.h"
#include "schema/small_file.h"

namespace dtrain::daemon {

namespace fs = std::filesystem;

namespace {

constexpr const char* kSuffix = ".user";   // what is being written beside it ends otherwise
constexpr std::string_view kAdmin = "admin", kUser = "user";
constexpr size_t kNameBytesMax = 64;       // of a certificate's common name

}  // namespace

fs::path UserKeys::file_of(const std::string& name) const { return folder_ / (name + kSuffix); }

Result<std::unique_ptr<UserKeys>> UserKeys::open(const fs::path& folder, const Authority& authority) {
  std::error_code error;
  fs::create_directories(folder / "users", error);
  if (error) return errno_error(fmt::format("create {}", (folder / "users").string()), error.value());
  std::unique_ptr<UserKeys> keys(new UserKeys(folder / "users", authority));
  TRY(keys->load());
  return keys;
}

// A file that is damaged is a key that opens nothing, and can be revoked.
Status UserKeys::load() {
  std::error_code error;
  fs::directory_iterator file(folder_, error);
  for (; !error && file != fs::directory_iterator(); file.increment(error)) {
    if (file->path().extension() != kSuffix) continue;
    const auto text = read_file(file->path());
    std::istringstream words(text.ok() ? text->value_or("") : "");
    Record record;
    std::string role;
    words >> record.fingerprint >> role;
    record.is_admin = role == kAdmin;
    records_[file->path().stem()] = record;
  }
  if (error) return errno_error(fmt::format("read {}", folder_.string()), error.value());
  return ok();
}

Result<AccessKey> UserKeys::invite(const std::string& name, bool as_admin, const Endpoint& daemon) {
  if (!is_host_name(name) || name.size() > kNameBytesMax) {
    return Error{Code::InvalidArgument, fmt::format("'{}' is not a user's name", name), "up to 64 letters, digits, '.', '-' and '_'"};
  }
  const std::lock_guard lock(mutex_);
  if (records_.contains(name)) {
    return Error{Code::AlreadyExists, fmt::format("{} has a key, which is shown once only", name),
                 fmt::format("`dtrain users revoke {}` ends that one; then there may be another", name)};
  }
  TRY(Certificate made, authority_.for_holder(name));
  const Record record{fingerprint(made.certificate), as_admin};
  TRY(replace_file(file_of(name), fmt::format("{} {}\n", record.fingerprint, as_admin ? kAdmin : kUser)));
  records_[name] = record;
  return AccessKey{KeyOf::User, name, to_string(daemon), authority_.certificate(), std::move(made.certificate), std::move(made.secret)};
}

Status UserKeys::revoke(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (!records_.contains(name)) return Error{Code::NotFound, fmt::format("no key was given out for '{}'", name), ""};
  if (::unlink(file_of(name).c_str()) != 0 && errno != ENOENT) {
    return errno_error(fmt::format("remove {}", file_of(name).string()), errno);
  }
  records_.erase(name);
  return sync_directory(folder_);
}

std::vector<Person> UserKeys::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<Person> people;
  for (const auto& [name, record] : records_) people.push_back({name, record.is_admin});
  return people;
}

Result<Person> UserKeys::person_of(const std::string& certificate) const {
  const std::string name = common_name(certificate);
  const std::lock_guard lock(mutex_);
  const auto found = records_.find(name);
  if (found != records_.end() && found->second.fingerprint == fingerprint(certificate)) return Person{name, found->second.is_admin};
  return Error{Code::PermissionDenied, fmt::format("the key of '{}' was revoked, or is no person's", name),
               "`dtrain users invite`, where the daemon runs, makes another"};
}

}  // namespace dtrain::daemon
