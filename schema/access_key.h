// The key by which a host joins a daemon over the network, or a person uses it: a file that `dtrain hosts invite` or
// `dtrain users invite` writes. Whoever has it can be that host, or that person, so it is as secret as an SSH key.
#pragma once

#include <string>
#include <string_view>

#include "schema/result.h"

namespace dtrain {

// The name that a daemon's certificate is made out to, wherever it runs.
inline constexpr const char* kDaemonCertificateName = "dtrain-daemon";

enum class KeyOf { Host, User };

struct AccessKey {
  KeyOf of = KeyOf::Host;
  std::string name;         // of the host, or the person
  std::string daemon;       // ADDRESS:PORT, as it is dialled
  std::string authority;    // PEM: whose certificates this daemon shows and takes
  std::string certificate;  // PEM: the holder's own
  std::string secret;       // PEM: its private key
  bool operator==(const AccessKey&) const = default;
};

std::string to_text(const AccessKey& key);
// Whether a file that begins so holds a key, of whichever kind. kAccessKeyMark bytes are enough.
inline constexpr size_t kAccessKeyMark = 16;
bool begins_as_access_key(std::string_view text);
// InvalidArgument: no such text, a part of it is missing, or it is the other kind's; `source` is what the message calls it.
Result<AccessKey> parse_access_key(std::string_view text, KeyOf of, std::string_view source);

// The key in a file. FailedPrecondition: others can read it. NotFound: there is none.
Result<AccessKey> read_access_key(const std::string& file, KeyOf of);

}  // namespace dtrain
