#include "schema/random_id.h"

#include <sys/random.h>

#include <cerrno>

namespace dtrain {

Result<std::string> random_id() {
  unsigned char bytes[kRandomIdDigits / 2];
  if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return errno_error("getrandom", errno);
  std::string id;
  for (const unsigned char byte : bytes) id += fmt::format("{:02x}", byte);
  return id;
}

}  // namespace dtrain
