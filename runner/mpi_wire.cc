#include "runner/mpi_wire.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace dtrain::runner {
namespace {

constexpr size_t kChallengeBytes = 32;

Status send_all(int fd, const void* data, size_t size) {
  const char* at = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t sent = ::send(fd, at, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno_error("send", errno);
    at += sent;
    size -= static_cast<size_t>(sent);
  }
  return ok();
}

Status receive_all(int fd, void* data, size_t size) {
  char* at = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = ::recv(fd, at, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Error{Code::Unavailable, got == 0 ? "the connection has ended" : std::strerror(errno), ""};
    at += got;
    size -= static_cast<size_t>(got);
  }
  return ok();
}

std::string hmac_of(std::string_view secret, std::string_view text) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), reinterpret_cast<const unsigned char*>(text.data()),
       text.size(), digest.data(), &size);
  return {reinterpret_cast<const char*>(digest.data()), size};
}

Result<std::string> read_kind(int fd, MpiFrame kind) {
  TRY(MpiMessage message, read_frame(fd));
  if (message.kind != kind) return Error{Code::InvalidArgument, "it speaks something else", ""};
  return std::move(message.bytes);
}

}  // namespace

Status write_frame(int fd, MpiFrame kind, std::string_view bytes) {
  std::array<char, 5> head{};
  const auto size = static_cast<uint32_t>(bytes.size());
  std::memcpy(head.data(), &size, sizeof size);
  head[4] = static_cast<char>(kind);
  TRY(send_all(fd, head.data(), head.size()));
  return send_all(fd, bytes.data(), bytes.size());
}

Result<MpiMessage> read_frame(int fd) {
  std::array<char, 5> head{};
  TRY(receive_all(fd, head.data(), head.size()));
  uint32_t size = 0;
  std::memcpy(&size, head.data(), sizeof size);
  const auto kind = static_cast<uint8_t>(head[4]);
  if (size > kMpiFrameBytesMax || kind > static_cast<uint8_t>(MpiFrame::Ended)) {
    return Error{Code::InvalidArgument, "it speaks something else", ""};
  }
  MpiMessage message{static_cast<MpiFrame>(kind), std::string(size, '\0')};
  TRY(receive_all(fd, message.bytes.data(), size));
  return message;
}

Status admit_agent(int fd, std::string_view secret) {
  std::string challenge(kChallengeBytes, '\0');
  if (::getrandom(challenge.data(), challenge.size(), 0) != static_cast<ssize_t>(challenge.size())) {
    return errno_error("get random bytes", errno);
  }
  TRY(write_frame(fd, MpiFrame::Challenge, challenge));
  TRY(const std::string answer, read_kind(fd, MpiFrame::Answer));
  const std::string expected = hmac_of(secret, challenge);
  if (answer.size() == expected.size() && CRYPTO_memcmp(answer.data(), expected.data(), expected.size()) == 0) return ok();
  return Error{Code::PermissionDenied, "a stranger", ""};
}

Status greet_worker(int fd, std::string_view secret) {
  TRY(const std::string challenge, read_kind(fd, MpiFrame::Challenge));
  return write_frame(fd, MpiFrame::Answer, hmac_of(secret, challenge));
}

}  // namespace dtrain::runner
