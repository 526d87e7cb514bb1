#include "daemon/network_listener.h"

#include <future>
#include <random>

#include "schema/blob.h"
#include "tests/integration/daemon/served_daemon.h"

namespace dtrain::daemon {
namespace {

using boost::asio::ip::tcp;

const std::string kHostHex(32, 'a'), kOtherHex(32, 'b');

struct Network {
  test::TemporaryFolder folder;
  ServedDaemon daemon;
  std::unique_ptr<HostKeys> keys = HostKeys::open(daemon.home.keys()).value();
  std::unique_ptr<UserKeys> users = UserKeys::open(daemon.home.keys(), keys->authority()).value();
  std::unique_ptr<NetworkListener> listener;

  explicit Network(size_t connections_max = 100,
                   std::chrono::milliseconds silence = std::chrono::minutes(1))
      : daemon(home_below(folder.path()), silence) {
    daemon.runner_api.guard(keys.get());
    daemon.outputs_api.guard(keys.get(), users.get());
    listener = NetworkListener::open(daemon.loop, {&daemon.client_api, &daemon.runner_api, &daemon.outputs_api}, keys->authority(), {"127.0.0.1", 0},
                                     connections_max)
                   .value();
    daemon.client_api.listens_on(listener.get(), users.get());
    REQUIRE_MESSAGE(listener->trouble().empty(), listener->trouble());
    REQUIRE(listener->listens().port != 0);
  }
  ~Network() {
    listener->close();
    bool down = false;
    std::thread shutdown([&] {
      listener->shut_down(gpr_now(GPR_CLOCK_MONOTONIC));
      boost::asio::post(daemon.loop, [&] { down = true; });
    });
    daemon.until([&] { return down; });
    shutdown.join();
  }

  AccessKey invited(const std::string& name) { return keys->invite(name, listener->listens()).value(); }

  std::shared_ptr<grpc::Channel> channel_to(const std::string& address,
                                            const std::shared_ptr<grpc::ChannelCredentials>& credentials) const {
    grpc::ChannelArguments arguments;
    arguments.SetSslTargetNameOverride(kDaemonCertificateName);
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE,
                     0);  // it is sent no more unread than it has asked for
    return grpc::CreateCustomChannel(address, credentials, arguments);
  }
  static std::shared_ptr<grpc::ChannelCredentials> credentials_of(const AccessKey& key) {
    return grpc::SslCredentials({key.authority, key.secret, key.certificate});
  }
  std::shared_ptr<grpc::Channel> channel_with(const AccessKey& key) const {
    return channel_to(to_string(listener->listens()), credentials_of(key));
  }

  // What a call comes to that blocks; the daemon's loop turns meanwhile.
  grpc::Status result_of(const std::function<grpc::Status(grpc::ClientContext&)>& call) {
    grpc::Status status;
    bool done = false;
    std::thread caller([&] {
      grpc::ClientContext context;
      status = call(context);
      boost::asio::post(daemon.loop, [&] { done = true; });
    });
    daemon.until([&] { return done; });
    caller.join();
    return status;
  }
  // Of nothing.
  grpc::Status fetch_over(const std::shared_ptr<grpc::Channel>& channel) {
    const auto stub = pb::Runner::NewStub(channel);
    return result_of([&stub](grpc::ClientContext& context) {
      const auto reader = stub->Fetch(&context, pb::FetchRequest());
      for (pb::BlobPart part; reader->Read(&part);) {
      }
      return reader->Finish();
    });
  }
};

TEST_CASE("a host with a key joins by the name that it was invited as, whatever it calls itself") {
  Network network;
  const AccessKey key = network.invited("gpu1");
  const FakeRunner runner(network.daemon, 0, network.channel_with(key), kHostHex);
  CHECK(!runner.ended());
  const auto& hosts = network.daemon.scheduler.model().hosts;
  REQUIRE(hosts.size() == 1);
  CHECK(hosts.begin()->second.name == "gpu1");
  const pb::Hello* hello = network.daemon.runner_api.hello(hosts.begin()->first);
  REQUIRE(hello != nullptr);
  CHECK(hello->inventory().name() == "gpu1");
  CHECK(network.daemon.runner_api.has_joined_by("gpu1"));
  CHECK(network.fetch_over(network.channel_with(key)).ok());
}

TEST_CASE("who shows no certificate, or another authority's, gets no further than the handshake") {
  Network network;
  const AccessKey key = network.invited("gpu1");
  const std::string address = to_string(network.listener->listens());
  const auto code_with = [&](const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
    return network.fetch_over(network.channel_to(address, credentials)).error_code();
  };
  CHECK(code_with(grpc::SslCredentials({key.authority, "", ""})) == grpc::StatusCode::UNAVAILABLE);
  CHECK(code_with(grpc::InsecureChannelCredentials()) == grpc::StatusCode::UNAVAILABLE);

  test::TemporaryFolder elsewhere;
  const auto others = HostKeys::open(elsewhere.path()).value();
  AccessKey alien = others->invite("gpu1", network.listener->listens()).value();
  CHECK(code_with(Network::credentials_of(alien)) == grpc::StatusCode::UNAVAILABLE);   // it would not trust us
  alien.authority = key.authority;
  CHECK(code_with(Network::credentials_of(alien)) == grpc::StatusCode::UNAVAILABLE);   // nor do we trust it

  const Certificate daemons_own = network.keys->authority().for_daemon().value();
  CHECK(code_with(grpc::SslCredentials({key.authority, daemons_own.secret, daemons_own.certificate})) ==
        grpc::StatusCode::UNAVAILABLE);
}

TEST_CASE("no host can pass for the daemon") {
  Network network;
  const AccessKey mine = network.invited("gpu1");
  const AccessKey impostor = network.invited(kDaemonCertificateName);
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({impostor.secret, impostor.certificate});
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::SslServerCredentials(options), &port);
  pb::Runner::Service service;
  builder.RegisterService(&service);
  const auto server = builder.BuildAndStart();
  REQUIRE(server != nullptr);
  const auto channel = network.channel_to("127.0.0.1:" + std::to_string(port), Network::credentials_of(mine));
  CHECK(network.fetch_over(channel).error_code() == grpc::StatusCode::UNAVAILABLE);
  server->Shutdown(std::chrono::system_clock::now());
}

TEST_CASE("a key opens what runners call, and nothing that people do") {
  Network network;
  const auto stub = pb::Client::NewStub(network.channel_with(network.invited("gpu1")));
  const grpc::Status info = network.result_of([&stub](grpc::ClientContext& context) {
    pb::InfoReply reply;
    return stub->Info(&context, pb::InfoRequest(), &reply);
  });
  CHECK(info.error_code() == grpc::StatusCode::PERMISSION_DENIED);
  pb::WatchRequest watched;
  watched.set_id("1");
  const grpc::Status watch = network.result_of([&](grpc::ClientContext& context) {
    const auto reader = stub->Watch(&context, watched);
    for (pb::WatchBatch batch; reader->Read(&batch);) {
    }
    return reader->Finish();
  });
  CHECK(watch.error_code() == grpc::StatusCode::PERMISSION_DENIED);
  const grpc::Status submit = network.result_of([&](grpc::ClientContext& context) {
    const auto stream = stub->Submit(&context);
    stream->WritesDone();
    for (pb::SubmitReply reply; stream->Read(&reply);) {
    }
    return stream->Finish();
  });
  CHECK(submit.error_code() == grpc::StatusCode::PERMISSION_DENIED);
}

TEST_CASE("a person's key that is revoked in the middle of a file ends the reading of it") {
  Network network;
  const AccessKey key = network.users->invite("anna", false, network.listener->listens()).value();
  REQUIRE(network.daemon.scheduler.submit(a_submission("a"), {}).ok());
  const auto output = network.daemon.home.outputs() / "1";
  std::filesystem::create_directories(output);
  constexpr uint64_t kBytes = uint64_t{1} << 40;   // of which the disk has none
  test::write_file(output / "large", "");
  std::filesystem::resize_file(output / "large", kBytes);
  const auto stub = pb::Outputs::NewStub(network.channel_with(key));
  uint64_t bytes = 0;
  const grpc::Status status = network.result_of([&](grpc::ClientContext& context) {
    pb::ReadOutputsRequest request;
    request.mutable_of()->set_experiment("1");
    request.add_paths("large");
    const auto reader = stub->Read(&context, request);
    for (pb::OutputPart part; reader->Read(&part);) {
      if (bytes == 0) CHECK(network.users->revoke("anna").ok());
      bytes += part.data().size();
    }
    return reader->Finish();
  });
  CHECK(status.error_code() == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(bytes > 0);
  CHECK(bytes < kBytes);
}

TEST_CASE("revoked keys hold no thread that others' outputs need") {
  Network network;
  const AccessKey key = network.users->invite("anna", false, network.listener->listens()).value();
  REQUIRE(network.users->revoke("anna").ok());
  const auto stub = pb::Outputs::NewStub(network.channel_with(key));
  // Without a word of it: an answer is there at once.
  const grpc::Status refused = network.result_of([&](grpc::ClientContext& context) {
    pb::WriteOutputsReply reply;
    const auto writer = stub->Write(&context, &reply);
    return writer->Finish();
  });
  CHECK(refused.error_code() == grpc::StatusCode::PERMISSION_DENIED);
}

TEST_CASE("a person's key opens what people do, and nothing that runners call") {
  Network network;
  const AccessKey key = network.users->invite("anna", false, network.listener->listens()).value();
  const auto channel = network.channel_with(key);
  pb::UsersReply who;
  const auto stub = pb::Client::NewStub(channel);
  CHECK(network.result_of([&](grpc::ClientContext& context) { return stub->Users(&context, pb::UsersRequest(), &who); }).ok());
  CHECK(who.user() == "anna");
  CHECK(!who.admin());
  CHECK(network.fetch_over(channel).error_code() == grpc::StatusCode::PERMISSION_DENIED);
  const FakeRunner runner(network.daemon, 0, channel, kHostHex);
  CHECK(runner.status().error_code() == grpc::StatusCode::PERMISSION_DENIED);
  // Outputs are read as a person, and as no host.
  const auto outputs = pb::Outputs::NewStub(channel);
  for (const std::string host : {"", kHostHex.c_str()}) {
    CAPTURE(host);
    const grpc::Status listed = network.result_of([&](grpc::ClientContext& context) {
      pb::OutputsRequest of;
      of.set_experiment("1");
      of.set_host_id(host);
      const auto reader = outputs->List(&context, of);
      for (pb::OutputList part; reader->Read(&part);) {
      }
      return reader->Finish();
    });
    CHECK(listed.error_code() == (host.empty() ? grpc::StatusCode::NOT_FOUND : grpc::StatusCode::PERMISSION_DENIED));
  }
  const grpc::Status written = network.result_of([&](grpc::ClientContext& context) {
    pb::WriteOutputsReply reply;
    const auto writer = outputs->Write(&context, &reply);
    pb::OutputParts parts;
    parts.mutable_of()->set_experiment("1");
    writer->Write(parts);
    writer->WritesDone();
    return writer->Finish();
  });
  CHECK(written.error_code() == grpc::StatusCode::PERMISSION_DENIED);
}

TEST_CASE("a key is one host's: the second is refused, and so is everybody once it is revoked") {
  Network network;
  const AccessKey key = network.invited("gpu1");
  const FakeRunner runner(network.daemon, 0, network.channel_with(key), kHostHex);
  {
    const FakeRunner second(network.daemon, 0, network.channel_with(key), kOtherHex);
    CHECK(second.ended());
    CHECK(second.status().error_code() == grpc::StatusCode::PERMISSION_DENIED);
    CHECK(second.status().error_message() == "the key of 'gpu1' is another host's");
  }
  CHECK(!runner.ended());
  REQUIRE(network.keys->revoke("gpu1").ok());
  CHECK(network.daemon.runner_api.cut("gpu1"));
  network.daemon.until([&] { return runner.ended() && !network.daemon.runner_api.has_joined_by("gpu1"); });
  const FakeRunner again(network.daemon, 0, network.channel_with(key), kHostHex);
  CHECK(again.status().error_message() == "the key of 'gpu1' was revoked");
  const grpc::Status fetch = network.fetch_over(network.channel_with(key));
  CHECK(fetch.error_code() == grpc::StatusCode::PERMISSION_DENIED);
}

TEST_CASE("a host that calls itself by another's ID does not get its place") {
  Network network;
  const FakeRunner local(network.daemon);
  const FakeRunner first(network.daemon, 0, network.channel_with(network.invited("gpu1")), kHostHex);
  const FakeRunner like_local(network.daemon, 0, network.channel_with(network.invited("gpu2")),
                              "h1");
  const FakeRunner like_first(network.daemon, 0, network.channel_with(network.invited("gpu3")),
                              kHostHex);
  for (const FakeRunner* runner : {&local, &first, &like_local, &like_first})
    CHECK(!runner->ended());
  CHECK(network.daemon.scheduler.model().hosts.size() == 4);
}

TEST_CASE("what a host says of a replica that another one has changes nothing") {
  Network network;
  ServedDaemon& daemon = network.daemon;
  std::vector<pb::UsageReport> reports;
  daemon.runner_api.on_usage = [&](const pb::UsageReport& report) { reports.push_back(report); };
  FakeRunner owner(daemon);
  REQUIRE(daemon.scheduler.submit(a_submission("a"), {}).ok());
  daemon.until([&] { return owner.last(pb::ToRunner::kLaunch) != nullptr; });
  const auto& replica = daemon.scheduler.model().experiments.at({1, 0}).replicas.at(0);

  FakeRunner other(daemon, 0, network.channel_with(network.invited("gpu1")), kHostHex);
  uint64_t round = 0;
  const auto all_is_said = [&] {  // and heard: messages of one host are taken in order
    pb::FromRunner message;
    message.mutable_renew()->set_sent_ms(++round);
    other.say(message);
    daemon.until([&] { return other.count(pb::ToRunner::kRenewed) == round; });
  };
  pb::FromRunner prepared, failed, started, exited, released, log, usage, hello;
  prepared.mutable_prepared()->set_experiment("1");
  prepared.mutable_prepared()->set_attempt(1);
  failed.mutable_prepare_failed()->set_experiment("1");
  failed.mutable_prepare_failed()->set_attempt(1);
  started.mutable_started()->set_replica("1.train");
  started.mutable_started()->set_attempt(1);
  exited.mutable_exited()->set_replica("1.train");
  exited.mutable_exited()->set_attempt(1);
  exited.mutable_exited()->mutable_status()->set_code(7);
  released.mutable_released()->set_replica("1.train");
  released.mutable_released()->set_attempt(1);
  log.mutable_log()->set_replica("1.train");
  log.mutable_log()->set_attempt(1);
  log.mutable_log()->set_data("forged\n");
  usage.mutable_usage()->add_replicas()->set_replica("1.train");
  hello.mutable_hello()->set_protocol(kProtocol);
  hello.mutable_hello()->set_host_id(kHostHex);
  pb::HeldReplica& held = *hello.mutable_hello()->add_held();
  held.set_replica("1.train");
  held.set_attempt(1);

  other.say(prepared);
  other.say(failed);
  all_is_said();
  CHECK(replica.progress == Progress::Launched);
  owner.say(prepared);
  daemon.until([&] { return owner.last(pb::ToRunner::kStart) != nullptr; });
  other.say(started);
  all_is_said();
  CHECK(replica.progress == Progress::Prepared);
  owner.say(started);
  daemon.until([&] { return replica.progress == Progress::Started; });
  for (const auto& message : {hello, log, usage, exited, released}) other.say(message);
  all_is_said();
  CHECK(other.last(pb::ToRunner::kWelcome)->welcome().logs().empty());
  CHECK(replica.progress == Progress::Started);
  for (const auto& report : reports) CHECK(report.replicas().empty());

  log.mutable_log()->set_data("own\n");
  owner.say(log);
  daemon.until([&] { return owner.last(pb::ToRunner::kLogAck) != nullptr; });
  CHECK(owner.last(pb::ToRunner::kLogAck)->log_ack().offset() == 4);
  other.say(released);
  all_is_said();
  log.mutable_log()->set_offset(4);
  owner.say(log);
  daemon.until([&] { return owner.count(pb::ToRunner::kLogAck) == 2; });
  CHECK(owner.last(pb::ToRunner::kLogAck)->log_ack().offset() == 8);
}

// 4 MB that don't get smaller: more than a peer is sent that reads nothing.
std::string large_blob(Blobs& blobs) {
  std::string bytes(size_t{4} << 20, '\0');
  std::mt19937 random;
  for (char& byte : bytes) byte = static_cast<char>(random());
  auto pack = blobs.begin().value();
  const Sha256 name = sha256(bytes);
  BlobEncoder encoder;
  const auto encoded = encoder.encode(bytes, [&](std::string_view part, bool last) {
    return pack->add(name, bytes.size(), part, last);
  });
  REQUIRE(encoded.ok());
  REQUIRE(pack->commit().ok());
  return to_bytes(name);
}

TEST_CASE("a key that is revoked ends what its host has not read yet") {
  Network network;
  ServedDaemon& daemon = network.daemon;
  const auto stub = pb::Runner::NewStub(network.channel_with(network.invited("gpu1")));
  pb::FetchRequest request;
  request.add_sha256(large_blob(*daemon.blobs));
  pb::BlobPart part;
  bool begun = false;
  std::promise<void> revoked;
  grpc::Status status;
  std::thread host([&] {
    grpc::ClientContext context;
    const auto reader = stub->Fetch(&context, request);
    const bool first = reader->Read(&part);
    boost::asio::post(daemon.loop, [&] { begun = true; });
    revoked.get_future().wait();
    while (first && reader->Read(&part)) {
    }
    status = reader->Finish();
  });
  daemon.until([&] { return begun; });
  REQUIRE(network.keys->revoke("gpu1").ok());
  CHECK_FALSE(daemon.runner_api.cut("gpu1"));  // it has not joined
  revoked.set_value();
  bool ended = false;
  std::thread waits([&] {
    host.join();
    boost::asio::post(daemon.loop, [&] { ended = true; });
  });
  daemon.until([&] { return ended; });
  waits.join();
  CHECK(status.error_code() == grpc::StatusCode::CANCELLED);
}

TEST_CASE("a host that never says who it is loses its stream") {
  Network network(100, std::chrono::milliseconds(60));
  const auto stub = pb::Runner::NewStub(network.channel_with(network.invited("gpu1")));
  const grpc::Status ended = network.result_of([&stub](grpc::ClientContext& context) {
    const auto stream = stub->Connect(&context);
    for (pb::ToRunner message; stream->Read(&message);) {
    }
    return stream->Finish();
  });
  CHECK(ended.error_code() == grpc::StatusCode::CANCELLED);
}

TEST_CASE("a host's address is one that the others can dial, or none") {
  Network network;
  const auto channel = network.channel_with(network.invited("gpu1"));
  FakeRunner runner(network.daemon, 0, channel, kHostHex);
  pb::FromRunner message;
  message.mutable_inventory()->set_address("10.0.0.5");
  runner.say(message);
  const auto& host = network.daemon.scheduler.model().hosts.begin()->second;
  network.daemon.until([&] { return host.address == "10.0.0.5"; });
  message.mutable_inventory()->set_address("127.0.0.1");
  runner.say(message);
  network.daemon.until([&] { return runner.ended(); });
  CHECK(runner.status().error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(host.address == "10.0.0.5");
}

TEST_CASE("a stream that a newer one replaces ends at once, and waits for no peer to read") {
  Network network;
  const auto channel = network.channel_with(network.invited("gpu1"));
  const FakeRunner first(network.daemon, 0, channel, kHostHex);
  const FakeRunner second(network.daemon, 0, channel, kHostHex);
  network.daemon.until([&] { return first.ended(); });
  CHECK(first.status().error_code() == grpc::StatusCode::CANCELLED);
  CHECK(!second.ended());
}

TEST_CASE(
    "strangers who say nothing take up so many connections and no more, and others come when they "
    "are gone") {
  Network network(2);
  std::vector<tcp::socket> strangers;
  const tcp::endpoint there(boost::asio::ip::make_address("127.0.0.1"),
                            static_cast<uint16_t>(network.listener->listens().port));
  for (int i = 0; i < 5; ++i) strangers.emplace_back(network.daemon.loop).connect(there);
  network.daemon.until([&] { return !network.listener->trouble().empty(); });
  CHECK(network.listener->trouble() == "2 connections are open on " +
                                           to_string(network.listener->listens()) +
                                           ", and no more are taken");
  strangers.clear();
  network.daemon.until([&] { return network.listener->trouble().empty(); });
  CHECK(network.fetch_over(network.channel_with(network.invited("gpu1"))).ok());
}

TEST_CASE("an address that is somebody else's is tried again until it is free") {
  Network first;
  const Endpoint taken = first.listener->listens();
  Network second;
  const auto late =
      NetworkListener::open(second.daemon.loop, {&second.daemon.runner_api}, second.keys->authority(), taken, 100)
          .value();
  CHECK(late->listens().port == 0);
  CHECK_MESSAGE(late->trouble().find("can't listen on " + to_string(taken)) == 0, late->trouble());
  first.listener->close();
  second.daemon.until([&] { return late->trouble().empty(); });
  CHECK(late->listens() == taken);
  late->close();
  late->shut_down(gpr_now(GPR_CLOCK_MONOTONIC));
}

}  // namespace
}  // namespace dtrain::daemon
