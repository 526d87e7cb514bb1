// The daemon's own certificate authority. By what it signs, hosts and people prove that they were invited, and the daemon
// that it is the one which invited them. The one file that knows OpenSSL's certificates.
#pragma once

#include <filesystem>
#include <string>

#include "schema/result.h"

namespace dtrain::daemon {

struct Certificate {
  std::string certificate;  // PEM
  std::string secret;       // PEM: the private key
};

// Owner: HostKeys. Thread: any; it never changes.
class Authority {
 public:
  // Made on first use, and kept in `file` with mode 0600.
  static Result<Authority> open(const std::filesystem::path& file);

  const std::string& certificate() const { return own_.certificate; }   // PEM
  // For whoever listens as kDaemonCertificateName. Nobody can listen with a holder's, nor dial with this.
  Result<Certificate> for_daemon() const;
  // For a host, or a person.
  Result<Certificate> for_holder(const std::string& name) const;

 private:
  explicit Authority(Certificate own) : own_(std::move(own)) {}

  Certificate own_;
};

// SHA-256 of a certificate in PEM, as hex; empty: it is none.
std::string fingerprint(const std::string& certificate);
// Whom a certificate is made out to; empty: nobody.
std::string common_name(const std::string& certificate);

}  // namespace dtrain::daemon
