#include "daemon/host_keys.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "schema/config.h"
#include "schema/random_id.h"
#include "schema/sha256.h"
#include "schema/small_file.h"

namespace dtrain::daemon {

namespace fs = std::filesystem;

Result<std::unique_ptr<HostKeys>> HostKeys::open(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder / "hosts", error);
  if (!error) fs::permissions(folder, fs::perms::owner_all, error);
  if (error) return errno_error(fmt::format("create {}", folder.string()), error.value());
  // By another authority none of them opens anything, and their names are free.
  if (!fs::exists(folder / "authority.pem", error)) {
    for (const char* given : {"hosts", "users"}) fs::remove_all(folder / given, error);
    fs::create_directories(folder / "hosts", error);
    if (error) return errno_error(fmt::format("create {}", folder.string()), error.value());
  }
  TRY(Authority authority, Authority::open(folder / "authority.pem"));
  return std::unique_ptr<HostKeys>(new HostKeys(folder, std::move(authority)));
}

Result<std::optional<HostKeys::Record>> HostKeys::read(const std::string& name) const {
  TRY(const auto text, read_file(file_of(name)));
  if (!text) return std::optional<Record>();
  const size_t line = text->find('\n');
  if (line == std::string::npos || text->back() != '\n') {
    return Error{Code::DataLoss, fmt::format("{} is damaged", file_of(name).string()),
                 fmt::format("`dtrain hosts revoke {}`; then it may be invited again", name)};
  }
  std::istringstream lines(*text);
  std::string first;
  std::getline(lines, first);
  Record record;
  std::istringstream(first) >> record.fingerprint >> record.lent_to;
  for (std::string host; std::getline(lines, host);) record.hosts.push_back(host);
  return std::optional(std::move(record));
}

Status HostKeys::write(const std::string& name, const Record& record) {
  std::string text = record.fingerprint;
  if (record.lent_to > 0) text += fmt::format(" {}", record.lent_to);
  for (const std::string& host : record.hosts) text += "\n" + host;
  return replace_file(file_of(name), text + "\n");
}

Result<AccessKey> HostKeys::invite(const std::string& name, const Endpoint& daemon) { return give_out(name, daemon, 0); }

Result<AccessKey> HostKeys::lend(const std::string& name, const Endpoint& daemon, int hosts) {
  return give_out(name, daemon, static_cast<size_t>(hosts));
}

Result<AccessKey> HostKeys::give_out(const std::string& name, const Endpoint& daemon, size_t lent_to) {
  if (!is_host_name(name) || name.size() > 64) {   // of a certificate's common name
    return Error{Code::InvalidArgument, fmt::format("'{}' is not a host's name", name),
                 "up to 64 letters, digits, '.', '-' and '_'"};
  }
  const std::lock_guard lock(mutex_);
  TRY(const auto known, read(name));
  if (known) {
    return Error{Code::AlreadyExists, fmt::format("{} has a key, which is shown once only", name),
                 fmt::format("`dtrain hosts revoke {}` ends that one; then it may be invited again", name)};
  }
  TRY(Certificate made, authority_.for_holder(name));
  TRY(write(name, {fingerprint(made.certificate), lent_to, {}}));
  return AccessKey{KeyOf::Host, name, to_string(daemon), authority_.certificate(), std::move(made.certificate), std::move(made.secret)};
}

Result<std::vector<HostId>> HostKeys::revoke(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const Error unknown{Code::NotFound, fmt::format("no key was given out for '{}'", name), ""};
  if (!is_host_name(name)) return unknown;
  const auto record = read(name);
  if (::unlink(file_of(name).c_str()) != 0) {
    if (errno == ENOENT) return unknown;
    return errno_error(fmt::format("remove {}", file_of(name).string()), errno);
  }
  TRY(sync_directory(folder_ / "hosts"));
  std::vector<HostId> hosts;
  if (!record.ok() || !*record) return hosts;
  for (const std::string& host : (*record)->hosts) hosts.push_back({host});
  return hosts;
}

std::vector<HostId> HostKeys::take_back(const std::string& name) {
  {
    const std::lock_guard lock(mutex_);
    const auto record = read(name);
    if (!record.ok() || !*record || (*record)->lent_to == 0) return {};
  }
  auto hosts = revoke(name);
  return hosts.ok() ? *std::move(hosts) : std::vector<HostId>();
}

std::vector<HostId> HostKeys::hosts_of(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto record = read(name);
  std::vector<HostId> hosts;
  if (!record.ok() || !*record) return hosts;
  for (const std::string& host : (*record)->hosts) hosts.push_back({host});
  return hosts;
}

std::vector<std::string> HostKeys::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator file(folder_ / "hosts", error);
  for (; !error && file != fs::directory_iterator(); file.increment(error)) {
    if (file->path().extension() != kSuffix) continue;
    const std::string name = file->path().stem();
    const auto record = read(name);
    const bool lent = record.ok() && *record && (*record)->lent_to > 0;
    if (!lent) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<HostKeys::Record> HostKeys::record_of(const std::string& certificate, std::string& name) const {
  name = common_name(certificate);
  const Error revoked{Code::PermissionDenied, fmt::format("the key of '{}' was revoked", name),
                      "`dtrain hosts invite`, where the daemon runs, makes another"};
  if (!is_host_name(name)) return revoked;
  TRY(auto record, read(name));
  if (!record || record->fingerprint != fingerprint(certificate)) return revoked;
  return *std::move(record);
}

Result<std::string> HostKeys::holder_of(const std::string& certificate) const {
  const std::lock_guard lock(mutex_);
  std::string name;
  TRY(const Record record, record_of(certificate, name));
  return name;
}

Result<HostKeys::Admitted> HostKeys::admit(const std::string& certificate, const HostId& host) {
  const std::lock_guard lock(mutex_);
  std::string name;
  TRY(Record record, record_of(certificate, name));
  const HostId id{to_hex(sha256(fmt::format("{}\n{}", name, host.hex))).substr(0, kRandomIdDigits)};
  const auto& known = record.hosts;
  if (known.size() < std::max<size_t>(record.lent_to, 1) && std::find(known.begin(), known.end(), id.hex) == known.end()) {
    record.hosts.push_back(id.hex);
    TRY(write(name, record));
  }
  if (std::find(known.begin(), known.end(), id.hex) != known.end()) return Admitted{name, record.lent_to > 0, id};
  return Error{Code::PermissionDenied, fmt::format("the key of '{}' is another host's", name),
               fmt::format("a key for each host; where that one is gone for good, or its --home: `dtrain hosts revoke {}`, "
                           "and invite it again", name)};
}

}  // namespace dtrain::daemon
