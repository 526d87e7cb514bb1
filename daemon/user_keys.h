// By whose keys people use this daemon over the network: DTRAIN_HOME/keys/users, with a file for each, `NAME.user`,
// which goes when the key is revoked.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/authority.h"
#include "daemon/rights.h"
#include "schema/access_key.h"
#include "schema/endpoint.h"

namespace dtrain::daemon {

// Owner: daemon main. Thread: any.
class UserKeys {
 public:
  // `folder`: of all keys. `authority` outlives this.
  static Result<std::unique_ptr<UserKeys>> open(const std::filesystem::path& folder, const Authority& authority);
  UserKeys(const UserKeys&) = delete;
  UserKeys& operator=(const UserKeys&) = delete;

  // AlreadyExists: that name has one.
  Result<AccessKey> invite(const std::string& name, bool as_admin, const Endpoint& daemon);
  // NotFound: no key was given out.
  Status revoke(const std::string& name);
  // All that were invited and not revoked, by name.
  std::vector<Person> all() const;
  // Whose certificate (PEM, which the authority has signed) it is. PermissionDenied: it was revoked, or is a host's.
  Result<Person> person_of(const std::string& certificate) const;

 private:
  UserKeys(std::filesystem::path folder, const Authority& authority) : folder_(std::move(folder)), authority_(authority) {}

  struct Record {
    std::string fingerprint;
    bool is_admin = false;
  };
  std::filesystem::path file_of(const std::string& name) const;
  Status load();

  const std::filesystem::path folder_;
  const Authority& authority_;
  mutable std::mutex mutex_;   // of:
  std::map<std::string, Record> records_;
};

}  // namespace dtrain::daemon
