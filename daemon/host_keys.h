// Whose keys open this daemon's door to the network: DTRAIN_HOME/keys, with the authority that
// signs them and a file for each host that was invited, `hosts/NAME.host`, which goes when it is
// revoked.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daemon/authority.h"
#include "schema/access_key.h"
#include "schema/endpoint.h"
#include "schema/ids.h"

namespace dtrain::daemon {

// Owner: daemon main. Thread: any.
class HostKeys {
 public:
  static Result<std::unique_ptr<HostKeys>> open(const std::filesystem::path& folder);
  HostKeys(const HostKeys&) = delete;
  HostKeys& operator=(const HostKeys&) = delete;

  const Authority& authority() const { return authority_; }

  // A key for one host, which will dial `daemon`. AlreadyExists: that name has one.
  Result<AccessKey> invite(const std::string& name, const Endpoint& daemon);
  // A key for so many hosts that a pool is to bring.
  Result<AccessKey> lend(const std::string& name, const Endpoint& daemon, int hosts);
  // No host gets in by that name's key any more. Those that have. NotFound: no key was given out.
  Result<std::vector<HostId>> revoke(const std::string& name);
  // The same of a key that was lent; of another, or none, nothing.
  std::vector<HostId> take_back(const std::string& name);
  // Those that have come with that name's key; none: nobody, or it was not given out.
  std::vector<HostId> hosts_of(const std::string& name) const;
  // Of all that were invited and not revoked.
  std::vector<std::string> names() const;
  // Whose key a certificate (PEM, which this authority has signed) belongs to. PermissionDenied: it was revoked.
  Result<std::string> holder_of(const std::string& certificate) const;
  // Who comes with that certificate and calls itself `host`. From now on the key is this host's
  // alone, or one of those that a lent one is for.
  struct Admitted {
    std::string name;
    bool lent = false;
    HostId
        id;  // of that name and what it calls itself: no other host gets the same, whatever it says
  };
  Result<Admitted> admit(const std::string& certificate, const HostId& host);

 private:
  HostKeys(std::filesystem::path folder, Authority authority)
      : folder_(std::move(folder)), authority_(std::move(authority)) {}

  static constexpr const char* kSuffix = ".host";  // what is being written beside it ends otherwise

  struct Record {
    std::string fingerprint;
    size_t lent_to = 0;              // so many hosts that a pool brings; 0: one that was invited
    std::vector<std::string> hosts;  // the HostIds of who came with it
  };
  Result<AccessKey> give_out(const std::string& name, const Endpoint& daemon, size_t lent_to);
  std::filesystem::path file_of(const std::string& name) const {
    return folder_ / "hosts" / (name + kSuffix);
  }
  Result<std::optional<Record>> read(const std::string& name) const;
  Status write(const std::string& name, const Record& record);
  Result<Record> record_of(const std::string& certificate, std::string& name) const;

  const std::filesystem::path folder_;
  const Authority authority_;
  mutable std::mutex mutex_;   // of the files
};

}  // namespace dtrain::daemon
