#include "cli/tls_wire.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <utility>

#include "schema/clock.h"
#include "schema/endpoint.h"

namespace dtrain::cli {

namespace {

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* pointer) const { Free(pointer); }
};
using TlsContext = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;
using TlsSession = std::unique_ptr<SSL, Freed<SSL_free>>;
using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;
using X509Pointer = std::unique_ptr<X509, Freed<X509_free>>;
using KeyPointer = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

// What one record holds at most: read whole, it leaves nothing behind that poll() does not know of.
constexpr size_t kRecordBytes = SSL3_RT_MAX_PLAIN_LENGTH;
constexpr std::array<unsigned char, 3> kHttp2 = {2, 'h', '2'};   // as ALPN has it

// OpenSSL's own writes to a socket raise SIGPIPE once the other end is gone.
int fd_of(BIO* bio) { return static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio))); }

int write_quietly(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t sent = ::send(fd_of(bio), data, static_cast<size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int read_quietly(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = ::recv(fd_of(bio), data, static_cast<size_t>(size), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long control(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

BIO* bio_of(int fd) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* const made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket without SIGPIPE");
    BIO_meth_set_write(made, write_quietly);
    BIO_meth_set_read(made, read_quietly);
    BIO_meth_set_ctrl(made, control);
    return made;
  }();
  BIO* const bio = BIO_new(method);
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  BIO_set_init(bio, 1);
  return bio;
}

Error broken_key() { return {Code::InvalidArgument, "a certificate of the key is damaged", "ask for another: `dtrain users invite`"}; }

Bio reading(const std::string& text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

Result<TlsContext> context_of(const AccessKey& key) {
  TlsContext context(SSL_CTX_new(TLS_client_method()));
  const X509Pointer authority(PEM_read_bio_X509(reading(key.authority).get(), nullptr, nullptr, nullptr));
  const X509Pointer own(PEM_read_bio_X509(reading(key.certificate).get(), nullptr, nullptr, nullptr));
  const KeyPointer secret(PEM_read_bio_PrivateKey(reading(key.secret).get(), nullptr, nullptr, nullptr));
  const bool good = context && authority && own && secret && SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) == 1 &&
                    X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), authority.get()) == 1 &&
                    SSL_CTX_use_certificate(context.get(), own.get()) == 1 && SSL_CTX_use_PrivateKey(context.get(), secret.get()) == 1;
  if (!good) return broken_key();
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_alpn_protos(context.get(), kHttp2.data(), kHttp2.size());
  return context;
}

bool wait_for(int fd, short events, int64_t deadline_ms) {
  while (true) {
    const int64_t left_ms = deadline_ms - boottime_ms();
    pollfd event = {fd, events, 0};
    const int happened = left_ms <= 0 ? 0 : ::poll(&event, 1, static_cast<int>(left_ms));
    if (happened < 0 && errno == EINTR) continue;
    return happened > 0;
  }
}

// What a network that is gone would never tell.
void watch_over(int fd) {
  const auto set = [fd](int level, int name, int value) { (void)::setsockopt(fd, level, name, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 40'000);
}

// 0, or an errno.
int connect_to(const addrinfo& address, int64_t deadline_ms, Fd& socket) {
  socket = Fd(::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  if (!socket) return errno;
  watch_over(socket.get());
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for(socket.get(), POLLOUT, deadline_ms)) return ETIMEDOUT;
  int why = 0;
  socklen_t size = sizeof why;
  return ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &why, &size) == 0 ? why : errno;
}

Result<Fd> dial(const AccessKey& key, int64_t deadline_ms) {
  const auto place = parse_endpoint(key.daemon);
  if (!place) return broken_key();
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int looked_up = ::getaddrinfo(place->host.c_str(), std::to_string(place->port).c_str(), &wanted, &found);
  if (looked_up != 0) {
    return Error{Code::Unavailable, fmt::format("no address of {} is known: {}", place->host, ::gai_strerror(looked_up)), ""};
  }
  const std::unique_ptr<addrinfo, Freed<freeaddrinfo>> all(found);
  int why = ECONNREFUSED;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    Fd socket;
    why = connect_to(*address, deadline_ms, socket);
    if (why == 0) return socket;
  }
  return Error{Code::Unavailable, errno_error(fmt::format("no daemon can be reached at {}", key.daemon), why).message,
               "`dtrain daemon status`, where it runs, tells whether it does; a firewall may be between"};
}

class TlsWire final : public Wire {
 public:
  TlsWire(Fd socket, TlsContext context) : socket_(std::move(socket)), context_(std::move(context)), session_(SSL_new(context_.get())) {
    BIO* const bio = bio_of(socket_.get());
    SSL_set_bio(session_.get(), bio, bio);   // its owner now
  }

  Status shake_hands(const std::string& daemon, int64_t deadline_ms) {
    if (SSL_set1_host(session_.get(), kDaemonCertificateName) != 1) return broken_key();
    SSL_set_tlsext_host_name(session_.get(), kDaemonCertificateName);
    while (true) {
      ERR_clear_error();
      const int done = SSL_connect(session_.get());
      if (done == 1) return ok();
      const int wants = SSL_get_error(session_.get(), done);
      if (wants != SSL_ERROR_WANT_READ && wants != SSL_ERROR_WANT_WRITE) return not_theirs(daemon);
      if (wait_for(fd(), wants == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT, deadline_ms)) continue;
      return Error{Code::Unavailable, fmt::format("what listens at {} does not answer", daemon), ""};
    }
  }

  int fd() const override { return socket_.get(); }

  ssize_t send(const char* data, size_t size) override {
    ERR_clear_error();
    size_t sent = 0;
    const int done = SSL_write_ex(session_.get(), data, size, &sent);
    return done == 1 ? static_cast<ssize_t>(sent) : failed(done);
  }

  ssize_t receive(char* data, size_t size) override {
    size_t all = 0;
    while (size - all >= kRecordBytes) {
      ERR_clear_error();
      size_t got = 0;
      const int done = SSL_read_ex(session_.get(), data + all, size - all, &got);
      if (done != 1) return all > 0 ? static_cast<ssize_t>(all) : failed(done);
      all += got;
    }
    return static_cast<ssize_t>(all);
  }

 private:
  ssize_t failed(int done) {
    const int why = SSL_get_error(session_.get(), done);
    if (why == SSL_ERROR_ZERO_RETURN) return 0;
    errno = why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? EAGAIN : ECONNRESET;
    return -1;
  }

  Status not_theirs(const std::string& daemon) const {
    if (const long verified = SSL_get_verify_result(session_.get()); verified != X509_V_OK) {
      return Error{Code::PermissionDenied,
                   fmt::format("what listens at {} is not the daemon of this key: {}", daemon, X509_verify_cert_error_string(verified)),
                   "a daemon that has lost its `keys` directory has others now: ask for another key; or the clock here is wrong by years"};
    }
    const unsigned long why = ERR_peek_last_error();
    const char* const reason = why == 0 ? nullptr : ERR_reason_error_string(why);
    return Error{Code::Unavailable, fmt::format("what listens at {} broke off{}{}", daemon, reason == nullptr ? "" : ": ", reason == nullptr ? "" : reason),
                 ""};
  }

  Fd socket_;
  TlsContext context_;
  TlsSession session_;
};

}  // namespace

Result<std::unique_ptr<Wire>> dial_by_tls(const AccessKey& key, int64_t timeout_ms) {
  const int64_t deadline_ms = boottime_ms() + timeout_ms;
  TRY(TlsContext context, context_of(key));
  TRY(Fd socket, dial(key, deadline_ms));
  auto wire = std::make_unique<TlsWire>(std::move(socket), std::move(context));
  TRY(wire->shake_hands(key.daemon, deadline_ms));
  return std::unique_ptr<Wire>(std::move(wire));
}

}  // namespace dtrain::cli
