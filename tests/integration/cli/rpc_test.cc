// The client's gRPC against the real one.
#include "cli/rpc.h"

#include <doctest/doctest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <atomic>
#include <cstring>
#include <future>
#include <optional>

#include "cli/connection.h"
#include "fake_daemon.h"

namespace dtrain::cli {
namespace {

constexpr const char* kInfo = "/dtrain.pb.Client/Info";
constexpr const char* kList = "/dtrain.pb.Client/List";
constexpr const char* kShow = "/dtrain.pb.Client/Show";

std::unique_ptr<Wire> connected_to(const Home& home) {
  Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, home.socket().c_str());
  REQUIRE(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
  return std::make_unique<SocketWire>(std::move(fd));
}

// Streams as a test wants them.
class Streams : public FakeDaemon {
 public:
  using FakeDaemon::FakeDaemon;

  grpc::Status Submit(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<pb::SubmitReply, pb::SubmitRequest>* stream) override {
    pb::SubmitRequest request;
    while (stream->Read(&request)) {
      if (refuse_at_once) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "full", "make room"};
      received_bytes += request.blob().data().size();
    }
    pb::SubmitReply reply;
    reply.mutable_accepted()->set_number(7);
    stream->Write(reply);
    return grpc::Status::OK;
  }

  // Writes until the reader goes.
  grpc::Status Watch(grpc::ServerContext*, const pb::WatchRequest*,
                     grpc::ServerWriter<pb::WatchBatch>* stream) override {
    pb::WatchBatch batch;
    batch.add_items()->mutable_log()->set_data(std::string(64 << 10, 'x'));
    uint64_t bytes = 0;
    while (stream->Write(batch)) bytes += 64 << 10;
    written_bytes.set_value(bytes);
    return grpc::Status::OK;
  }

  grpc::Status Monitor(grpc::ServerContext*, const pb::MonitorRequest*,
                       grpc::ServerWriter<pb::MonitorSample>*) override {
    released.get_future().wait();  // never an answer
    return grpc::Status::OK;
  }

  bool refuse_at_once = false;
  std::atomic<uint64_t> received_bytes = 0;
  std::promise<uint64_t> written_bytes;
  std::promise<void> released;
};

template <typename Reply>
Status ask(RpcChannel& channel, const char* method, const google::protobuf::MessageLite& request,
           Reply& reply) {
  RpcCall call(channel, method);
  call.write(request);
  call.writes_done();
  call.read(reply);
  return call.finish();
}

TEST_CASE("calls one after the other on one connection") {
  const ScratchHome scratch;
  FakeDaemon daemon(scratch.home());
  RpcChannel channel(connected_to(scratch.home()));
  for (int i = 0; i < 3; ++i) {
    pb::InfoReply reply;
    CHECK(ask(channel, kInfo, pb::InfoRequest(), reply).ok());
    CHECK(reply.pid() == static_cast<uint64_t>(getpid()));
  }
}

TEST_CASE("a refusal's message and hint arrive byte for byte") {
  const ScratchHome scratch;
  FakeDaemon daemon(scratch.home());
  RpcChannel channel(connected_to(scratch.home()));
  for (const std::string hint : {"", "a", "ab", "abc", "größer\n100 %\x01\xff"}) {
    daemon.show_status = {grpc::StatusCode::NOT_FOUND, "nö: 5 %25\n%zz", hint};
    pb::ShowReply reply;
    const Status status = ask(channel, kShow, pb::ShowRequest(), reply);
    REQUIRE(!status.ok());
    CHECK(status.error().code == Code::NotFound);
    CHECK(status.error().message == "nö: 5 %25\n%zz");
    CHECK(status.error().hint == hint);
  }
}

TEST_CASE("codes that no caller expects are internal errors") {
  const ScratchHome scratch;
  FakeDaemon daemon(scratch.home());
  RpcChannel channel(connected_to(scratch.home()));
  for (const auto code : {grpc::StatusCode::UNKNOWN, grpc::StatusCode::OUT_OF_RANGE,
                          grpc::StatusCode::UNAUTHENTICATED}) {
    daemon.show_status = {code, "why"};
    pb::ShowReply reply;
    const Status status = ask(channel, kShow, pb::ShowRequest(), reply);
    REQUIRE(!status.ok());
    CHECK(status.error().code == Code::Internal);
    CHECK(status.error().message == "why");
  }
  pb::ShowReply reply;
  const Status unknown = ask(channel, "/dtrain.pb.Client/Nothing", pb::ShowRequest(), reply);
  REQUIRE(!unknown.ok());
  CHECK(unknown.error().code == Code::Unimplemented);
}

TEST_CASE("an answer larger than any window arrives whole") {
  const ScratchHome scratch;
  FakeDaemon daemon(scratch.home());
  for (int i = 0; i < 100; ++i) daemon.list.add_experiments()->set_note(std::string(100'000, 'n'));
  RpcChannel channel(connected_to(scratch.home()));
  pb::ListReply reply;
  REQUIRE(ask(channel, kList, pb::ListRequest(), reply).ok());
  CHECK(reply.SerializeAsString() == daemon.list.SerializeAsString());
}

TEST_CASE("an upload goes as fast as the server takes it, to the last byte") {
  const ScratchHome scratch;
  Streams daemon(scratch.home());
  RpcChannel channel(connected_to(scratch.home()));
  RpcCall call(channel, kSubmitMethod);
  pb::SubmitRequest request;
  request.mutable_blob()->set_data(std::string(256 << 10, 'b'));
  for (int i = 0; i < 200; ++i) REQUIRE(call.write(request));
  call.writes_done();
  pb::SubmitReply reply;
  REQUIRE(call.read(reply));
  CHECK(reply.accepted().number() == 7);
  CHECK(call.finish().ok());
  CHECK(daemon.received_bytes == uint64_t{200} * (256 << 10));
}

TEST_CASE("a server that refuses in the middle of an upload is heard") {
  const ScratchHome scratch;
  Streams daemon(scratch.home());
  daemon.refuse_at_once = true;
  RpcChannel channel(connected_to(scratch.home()));
  RpcCall call(channel, kSubmitMethod);
  pb::SubmitRequest request;
  request.mutable_blob()->set_data(std::string(256 << 10, 'b'));
  while (call.write(request)) {
  }
  const Status status = call.finish();
  REQUIRE(!status.ok());
  CHECK(status.error().code == Code::ResourceExhausted);
  CHECK(status.error().hint == "make room");
  pb::InfoReply reply;  // the connection is as good as before
  CHECK(ask(channel, kInfo, pb::InfoRequest(), reply).ok());
}

TEST_CASE("a stream that nobody reads stops its sender and holds up no other call") {
  const ScratchHome scratch;
  Streams daemon(scratch.home());
  RpcChannel channel(connected_to(scratch.home()));
  std::optional<RpcCall> watch(std::in_place, channel, kWatchMethod);
  watch->write(pb::WatchRequest());
  watch->writes_done();
  pb::WatchBatch batch;
  REQUIRE(watch->read(batch));
  for (int i = 0; i < 300; ++i) {
    pb::InfoReply reply;
    REQUIRE(ask(channel, kInfo, pb::InfoRequest(), reply).ok());
  }
  watch.reset();  // which the server hears of, with the next exchange at the latest
  pb::InfoReply reply;
  CHECK(ask(channel, kInfo, pb::InfoRequest(), reply).ok());
  CHECK(daemon.written_bytes.get_future().get() < (8 << 20));
}

TEST_CASE("a call without an answer ends when its time is up") {
  const ScratchHome scratch;
  Streams daemon(scratch.home());
  RpcChannel channel(connected_to(scratch.home()));
  {
    RpcCall call(channel, kMonitorMethod, 50);
    call.write(pb::MonitorRequest());
    call.writes_done();
    pb::MonitorSample sample;
    CHECK(!call.read(sample));
    // Whoever looks at its clock first, this end or gRPC at the other.
    const Error late = call.finish().error();
    CHECK(late.code == Code::DeadlineExceeded);
    CHECK_MESSAGE(late.message.starts_with("the daemon did not answer within "), late.message);
  }
  pb::InfoReply reply;
  CHECK(ask(channel, kInfo, pb::InfoRequest(), reply).ok());
  daemon.released.set_value();
}

TEST_CASE("a connection that breaks ends every call, and so does one that talks nonsense") {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  RpcChannel channel(std::make_unique<SocketWire>(Fd(ends[0])));
  Fd server(ends[1]);
  RpcCall one(channel, kInfo), two(channel, kWatchMethod);
  SUBCASE("closed") {}
  SUBCASE("nonsense") {
    REQUIRE(write(server.get(), "HTTP/1.1 400 what?\r\n\r\n", 22) == 22);
  }
  SUBCASE("half a frame") {
    REQUIRE(write(server.get(), "\0\0\x04\x04\0\0\0\0\0\0", 10) == 10);
  }
  server.reset();
  pb::InfoReply reply;
  CHECK(!one.read(reply));
  for (RpcCall* call : {&one, &two}) {
    const auto ended = call->ended();
    REQUIRE(ended.has_value());
    CHECK(ended->error().code == Code::Unavailable);
  }
  RpcCall late(channel, kInfo);
  CHECK(!late.write(pb::InfoRequest()));
  CHECK(late.finish().error().code == Code::Unavailable);
}

}  // namespace
}  // namespace dtrain::cli
