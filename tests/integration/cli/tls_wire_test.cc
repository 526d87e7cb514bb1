// The client's gRPC over TLS against the real one.
#include "cli/tls_wire.h"

#include <doctest/doctest.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <thread>

#include "cli/rpc.h"
#include "daemon/user_keys.h"
#include "schema/dtrain.grpc.pb.h"
#include "schema/fd.h"
#include "schema/version.h"
#include "tests/support/project.h"

namespace dtrain::cli {
namespace {

using daemon::Authority;
using daemon::Certificate;

// Says what it was told, large and small; of a submission how many bytes came.
class Echo final : public pb::Client::Service {
 public:
  grpc::Status Show(grpc::ServerContext*, const pb::ShowRequest* request, pb::ShowReply* reply) override {
    reply->set_spec_yaml(request->project_dir());
    return grpc::Status::OK;
  }
  grpc::Status Submit(grpc::ServerContext*, grpc::ServerReaderWriter<pb::SubmitReply, pb::SubmitRequest>* stream) override {
    pb::SubmitRequest request;
    uint32_t bytes = 0;
    while (stream->Read(&request)) bytes += static_cast<uint32_t>(request.blob().data().size());
    pb::SubmitReply reply;
    reply.mutable_accepted()->set_number(bytes);
    stream->Write(reply);
    return grpc::Status::OK;
  }
  // Much, and in pieces of any size.
  grpc::Status Watch(grpc::ServerContext*, const pb::WatchRequest*, grpc::ServerWriter<pb::WatchBatch>* stream) override {
    for (size_t size = 1; size < (900u << 10); size = size * 3 + 1) {
      pb::WatchBatch batch;
      batch.add_items()->mutable_log()->set_data(std::string(size, 'x'));
      if (!stream->Write(batch)) break;
    }
    return grpc::Status::OK;
  }
};

struct Served {
  explicit Served(const Authority& authority, const Certificate& own) {
    grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    options.pem_root_certs = authority.certificate();
    options.pem_key_cert_pairs.push_back({own.secret, own.certificate});
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port);
    builder.RegisterService(&echo);
    server = builder.BuildAndStart();
    REQUIRE(port != 0);
  }
  Echo echo;
  int port = 0;
  std::unique_ptr<grpc::Server> server;
};

struct TlsScene {
  test::TemporaryFolder folder;
  Authority authority = Authority::open(folder.path() / "authority.pem").value();
  Authority other = Authority::open(folder.path() / "other.pem").value();

  AccessKey key_to(int port, const Authority& of) const {
    const Certificate own = of.for_holder("anna").value();
    return {KeyOf::User, "anna", "127.0.0.1:" + std::to_string(port), of.certificate(), own.certificate, own.secret};
  }
};

TEST_CASE("calls by TLS: small and large, both ways, one after the other and beside each other") {
  const TlsScene scene;
  const Served served(scene.authority, scene.authority.for_daemon().value());
  auto dialled = dial_by_tls(scene.key_to(served.port, scene.authority));
  REQUIRE_MESSAGE(dialled.ok(), dialled.error().message);
  RpcChannel channel(std::move(*dialled));
  for (const size_t size : {size_t{0}, size_t{1}, size_t{16'383}, size_t{16'384}, size_t{16'385}, size_t{600'000}}) {
    CAPTURE(size);
    pb::ShowRequest request;
    request.set_project_dir(std::string(size, 'y'));
    RpcCall call(channel, "/dtrain.pb.Client/Show", 10'000);
    call.write(request);
    call.writes_done();
    pb::ShowReply reply;
    REQUIRE(call.read(reply));
    CHECK(call.finish().ok());
    CHECK(reply.spec_yaml() == request.project_dir());
  }
  RpcCall sending(channel, "/dtrain.pb.Client/Submit");
  RpcCall watching(channel, "/dtrain.pb.Client/Watch");
  watching.write(pb::WatchRequest());
  watching.writes_done();
  pb::SubmitRequest part;
  part.mutable_blob()->set_data(std::string(700'000, 'z'));
  for (int i = 0; i < 30; ++i) REQUIRE(sending.write(part));
  sending.writes_done();
  pb::SubmitReply accepted;
  REQUIRE(sending.read(accepted));
  CHECK(accepted.accepted().number() == 30 * 700'000);
  size_t expected = 1;
  for (pb::WatchBatch batch; watching.read(batch); expected = expected * 3 + 1) {
    REQUIRE(batch.items_size() == 1);
    CHECK(batch.items(0).log().data().size() == expected);
  }
  CHECK(expected >= (900u << 10));
  CHECK(watching.finish().ok());
}

TEST_CASE("a daemon with other keys, or who only has somebody's, is not taken for the daemon") {
  const TlsScene scene;
  const Served of_others(scene.other, scene.other.for_daemon().value());
  const auto alien = dial_by_tls(scene.key_to(of_others.port, scene.authority));
  REQUIRE(!alien.ok());
  CHECK(alien.error().code == Code::PermissionDenied);
  CHECK_MESSAGE(alien.error().message.find("is not the daemon of this key") != std::string::npos, alien.error().message);
  // Invited by the same authority: that makes nobody the daemon.
  const Served impostor(scene.authority, scene.authority.for_holder(kDaemonCertificateName).value());
  const auto fooled = dial_by_tls(scene.key_to(impostor.port, scene.authority));
  REQUIRE(!fooled.ok());
  CHECK(fooled.error().code == Code::PermissionDenied);
}

TEST_CASE("a key of another authority gets no further than the handshake") {
  const TlsScene scene;
  const Served served(scene.authority, scene.authority.for_daemon().value());
  AccessKey key = scene.key_to(served.port, scene.other);
  key.authority = scene.authority.certificate();
  auto dialled = dial_by_tls(key);
  REQUIRE(dialled.ok());   // TLS 1.3 says so with the first answer
  RpcChannel channel(std::move(*dialled));
  RpcCall call(channel, "/dtrain.pb.Client/Show", 10'000);
  call.write(pb::ShowRequest());
  call.writes_done();
  pb::ShowReply reply;
  CHECK(!call.read(reply));
  CHECK(call.finish().error().code == Code::Unavailable);
}

// A socket that listens; nobody accepts.
struct Silent {
  Fd socket{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  int port = 0;
  Silent() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port = ntohs(address.sin_port);
  }
  Fd connect() const {
    Fd other(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    socklen_t size = sizeof address;
    REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    REQUIRE(::connect(other.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    return other;
  }
};

TEST_CASE("nobody there, somebody who says nothing, who speaks something else, and who hangs up") {
  const TlsScene scene;
  Silent place;
  const AccessKey key = scene.key_to(place.port, scene.authority);
  const auto nobody = dial_by_tls(key);
  REQUIRE(!nobody.ok());
  CHECK(nobody.error().code == Code::Unavailable);
  CHECK_MESSAGE(nobody.error().message.find("refused") != std::string::npos, nobody.error().message);

  REQUIRE(::listen(place.socket.get(), 8) == 0);
  const auto silent = dial_by_tls(key, 50);
  REQUIRE(!silent.ok());
  CHECK(silent.error().code == Code::Unavailable);
  CHECK_MESSAGE(silent.error().message.find("does not answer") != std::string::npos, silent.error().message);

  for (const std::string answer : {"", "HTTP/1.1 400 Bad Request\r\n\r\n"}) {
    CAPTURE(answer);
    std::thread other([&] {
      Fd waiting(::accept(place.socket.get(), nullptr, nullptr));   // the one of before
      const Fd accepted(::accept(place.socket.get(), nullptr, nullptr));
      char byte = 0;
      (void)!::read(accepted.get(), &byte, 1);
      (void)!::write(accepted.get(), answer.data(), answer.size());
    });
    Fd plain;
    if (!answer.empty()) plain = place.connect();   // in place of the one of before
    const auto broken = dial_by_tls(key);
    other.join();
    REQUIRE(!broken.ok());
    CHECK(broken.error().code == Code::Unavailable);
    CHECK_MESSAGE(broken.error().message.find("broke off") != std::string::npos, broken.error().message);
  }
}

TEST_CASE("a server that goes away ends what is being asked, and no signal ends the program") {
  const TlsScene scene;
  auto served = std::make_unique<Served>(scene.authority, scene.authority.for_daemon().value());
  auto dialled = dial_by_tls(scene.key_to(served->port, scene.authority));
  REQUIRE(dialled.ok());
  RpcChannel channel(std::move(*dialled));
  RpcCall sending(channel, "/dtrain.pb.Client/Submit");
  pb::SubmitRequest part;
  part.mutable_blob()->set_data(std::string(100'000, 'z'));
  REQUIRE(sending.write(part));
  served->server->Shutdown(std::chrono::system_clock::now());
  served.reset();
  while (sending.write(part)) {
  }
  CHECK(!sending.finish().ok());
}

TEST_CASE("a key with a damaged certificate is said to be so") {
  const TlsScene scene;
  AccessKey key = scene.key_to(1, scene.authority);
  key.certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
  const auto broken = dial_by_tls(key);
  REQUIRE(!broken.ok());
  CHECK(broken.error().code == Code::InvalidArgument);
}

}  // namespace
}  // namespace dtrain::cli
