#include "schema/base64.h"

#include <openssl/evp.h>

namespace dtrain {

std::optional<std::string> base64_decoded(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c != '\n' && c != '\r') digits += c;
  }
  for (int i = 0; i < 2 && digits.ends_with('='); ++i) digits.pop_back();
  // Elsewhere OpenSSL takes "=" for a zero, and trims blanks.
  if (digits.size() % 4 == 1 || digits.find_first_of("= \t") != std::string::npos) return std::nullopt;
  const size_t bytes = digits.size() * 3 / 4;
  digits.resize((digits.size() + 3) / 4 * 4, '=');
  std::string decoded(digits.size() / 4 * 3, '\0');
  const int length = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(decoded.data()), reinterpret_cast<const unsigned char*>(digits.data()),
                                     static_cast<int>(digits.size()));
  if (length < 0) return std::nullopt;
  decoded.resize(bytes);
  return decoded;
}

}  // namespace dtrain
