#include "daemon/exec_relay.h"

#include "tests/integration/daemon/served_daemon.h"

namespace dtrain::daemon {
namespace {

// One end of a call of Exec: says what it is told to, and keeps what it hears.
template <typename Out, typename In>
class End : public grpc::ClientBidiReactor<Out, In> {
 public:
  explicit End(ServedDaemon& daemon) : daemon_(daemon) {}
  ~End() override {
    context.TryCancel();
    daemon_.until([this] { return ended; });
  }

  void begin() {
    this->AddHold();
    this->StartRead(&in_);
    this->StartCall();
  }
  void say(Out message) {
    waiting_.push_back(std::move(message));
    if (waiting_.size() == 1) this->StartWrite(&waiting_.front());
  }

  grpc::ClientContext context;
  std::deque<In> heard;
  bool ended = false;
  grpc::Status status;

 private:
  void OnReadDone(bool good) override {
    boost::asio::post(daemon_.loop, [this, good] {
      if (!good) return this->RemoveHold();
      heard.push_back(in_);
      this->StartRead(&in_);
    });
  }
  void OnWriteDone(bool) override {
    boost::asio::post(daemon_.loop, [this] {
      waiting_.pop_front();
      if (!waiting_.empty()) this->StartWrite(&waiting_.front());
    });
  }
  void OnDone(const grpc::Status& with) override {
    boost::asio::post(daemon_.loop, [this, with] {
      status = with;
      ended = true;
    });
  }

  ServedDaemon& daemon_;
  In in_;
  std::deque<Out> waiting_;
};

pb::ExecInput run_true(const std::string& id) {
  pb::ExecInput first;
  first.mutable_start()->set_id(id);
  first.mutable_start()->add_argv("true");
  return first;
}

pb::ExecInput connect_to(const std::string& id, uint32_t port) {
  pb::ExecInput first;
  first.mutable_forward()->set_id(id);
  first.mutable_forward()->set_port(port);
  return first;
}

struct Person : End<pb::ExecInput, pb::ExecOutput> {
  Person(ServedDaemon& daemon, const std::string& id) : Person(daemon, run_true(id)) {}
  Person(ServedDaemon& daemon, const pb::ExecInput& first) : End(daemon), stub(pb::Client::NewStub(daemon.channel)) {
    stub->async()->Exec(&context, this);
    begin();
    say(first);
  }
  std::unique_ptr<pb::Client::Stub> stub;
};

struct HostEnd : End<pb::ExecOutput, pb::ExecInput> {
  HostEnd(ServedDaemon& daemon, const std::string& session) : End(daemon), stub(pb::Runner::NewStub(daemon.channel)) {
    stub->async()->Exec(&context, this);
    begin();
    pb::ExecOutput claim;
    claim.mutable_claim()->set_session(session);
    say(claim);
  }
  std::unique_ptr<pb::Runner::Stub> stub;
};

// 1.train runs on h1.
struct Running {
  Running() {
    REQUIRE(daemon.scheduler.submit(a_submission("a"), {}).ok());
    daemon.until([&] { return runner->last(pb::ToRunner::kLaunch) != nullptr; });
    pb::FromRunner prepared;
    prepared.mutable_prepared()->set_experiment("1");
    prepared.mutable_prepared()->set_attempt(1);
    runner->say(prepared);
    daemon.until([&] { return runner->last(pb::ToRunner::kStart) != nullptr; });
    pb::FromRunner started;
    started.mutable_started()->set_replica("1.train");
    started.mutable_started()->set_attempt(1);
    runner->say(started);
    daemon.until([&] {
      const Experiment& experiment = daemon.scheduler.model().experiments.at({1, 0});
      return state_of(experiment) == State::Running;
    });
  }
  const pb::ExecOpen& open() {
    daemon.until([&] { return runner->last(pb::ToRunner::kExec) != nullptr; });
    return runner->last(pb::ToRunner::kExec)->exec();
  }

  test::TemporaryFolder folder;
  ServedDaemon daemon{home_below(folder.path())};
  std::optional<FakeRunner> runner{std::in_place, daemon};
};

TEST_CASE("a command goes to the host of the replica, and what both ends say goes on in order") {
  Running scene;
  Person person(scene.daemon, "1");
  pb::ExecInput early;
  early.set_input("before it is claimed");
  person.say(early);
  const pb::ExecOpen open = scene.open();
  CHECK(open.replica() == "1.train");
  CHECK(open.attempt() == 1);
  CHECK(open.start().argv(0) == "true");
  HostEnd host(scene.daemon, open.session());
  scene.daemon.until([&] { return !host.heard.empty(); });
  CHECK(host.heard.front().input() == "before it is claimed");
  pb::ExecOutput started, output, ended;
  started.mutable_started();
  output.set_output("hello");
  ended.mutable_ended()->set_code(3);
  for (const auto& message : {started, output, ended}) host.say(message);
  scene.daemon.until([&] { return person.ended; });
  REQUIRE(person.heard.size() == 3);
  CHECK(person.heard[0].started().replica() == "1.train");
  CHECK(person.heard[0].started().host_name() == "h1");
  CHECK(person.heard[1].output() == "hello");
  CHECK(person.heard[2].ended().code() == 3);
  CHECK(person.status.ok());
}

TEST_CASE("whichever end goes, the other one is told") {
  Running scene;
  {
    std::optional<Person> person(std::in_place, scene.daemon, "1.train");
    HostEnd host(scene.daemon, scene.open().session());
    pb::ExecOutput started;
    started.mutable_started();
    host.say(started);
    scene.daemon.until([&] { return !person->heard.empty(); });
    person.reset();
    scene.daemon.until([&] { return host.ended; });
  }
  Person person(scene.daemon, "1.train");
  const std::string first = scene.open().session();
  scene.daemon.until([&] { return scene.open().session() != first || scene.runner->count(pb::ToRunner::kExec) == 2; });
  std::optional<HostEnd> host(std::in_place, scene.daemon, scene.open().session());
  pb::ExecOutput started;
  started.mutable_started();
  host->say(started);
  scene.daemon.until([&] { return !person.heard.empty(); });
  host.reset();
  scene.daemon.until([&] { return person.ended; });
  CHECK(person.status.error_code() == grpc::StatusCode::ABORTED);
}

TEST_CASE("a refusal of the host reaches the person with its hint") {
  Running scene;
  Person person(scene.daemon, "1");
  HostEnd host(scene.daemon, scene.open().session());
  pb::ExecOutput refused;
  refused.mutable_refused()->set_code(static_cast<uint32_t>(Code::FailedPrecondition));
  refused.mutable_refused()->set_message("1.train does not run any more");
  refused.mutable_refused()->set_hint("look");
  host.say(refused);
  scene.daemon.until([&] { return person.ended; });
  CHECK(person.status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(person.status.error_message() == "1.train does not run any more");
  CHECK(person.status.error_details() == "look");
}

TEST_CASE("a session is had by who was told of it, once") {
  Running scene;
  Person person(scene.daemon, "1");
  HostEnd stranger(scene.daemon, "00000000000000000000000000000000");
  scene.daemon.until([&] { return stranger.ended; });
  CHECK(stranger.status.error_code() == grpc::StatusCode::NOT_FOUND);
  HostEnd host(scene.daemon, scene.open().session());
  pb::ExecOutput started;
  started.mutable_started();
  host.say(started);
  scene.daemon.until([&] { return !person.heard.empty(); });
  HostEnd second(scene.daemon, scene.open().session());
  scene.daemon.until([&] { return second.ended; });
  CHECK_FALSE(person.ended);
}

TEST_CASE("a connection goes to the host of the replica as a message of its own, which an older runner does not take for a shell") {
  Running scene;
  Person person(scene.daemon, connect_to("1", 6006));
  scene.daemon.until([&] { return scene.runner->last(pb::ToRunner::kForward) != nullptr; });
  const pb::ForwardOpen open = scene.runner->last(pb::ToRunner::kForward)->forward();
  CHECK(open.replica() == "1.train");
  CHECK(open.attempt() == 1);
  CHECK(open.port() == 6006);
  CHECK(scene.runner->last(pb::ToRunner::kExec) == nullptr);
  HostEnd host(scene.daemon, open.session());
  pb::ExecOutput started, ended;
  started.mutable_started();
  ended.mutable_ended();
  host.say(started);
  host.say(ended);
  scene.daemon.until([&] { return person.ended; });
  REQUIRE(person.heard.size() == 2);
  CHECK(person.heard[0].started().host_name() == "h1");
  CHECK(person.status.ok());
}

TEST_CASE("where a connection would lead is answered without the host, and what is no port is refused") {
  Running scene;
  Person asks(scene.daemon, connect_to("1", 0));
  scene.daemon.until([&] { return asks.ended; });
  REQUIRE(asks.heard.size() == 1);
  CHECK(asks.heard[0].started().replica() == "1.train");
  CHECK(asks.heard[0].started().host_name() == "h1");
  CHECK(asks.status.ok());
  Person high(scene.daemon, connect_to("1", 65536));
  scene.daemon.until([&] { return high.ended; });
  CHECK(high.status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  Person silent(scene.daemon, pb::ExecInput());
  scene.daemon.until([&] { return silent.ended; });
  CHECK(silent.status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(scene.runner->last(pb::ToRunner::kForward) == nullptr);
}

TEST_CASE("what does not run, or is out of reach, is said at once") {
  Running scene;
  REQUIRE(scene.daemon.scheduler.submit(a_submission("b"), {}).ok());
  REQUIRE(scene.daemon.scheduler.submit(a_submission("c"), {}).ok());
  const auto refusal_of = [&](const std::string& id) {
    Person person(scene.daemon, id);
    scene.daemon.until([&] { return person.ended; });
    return person.status.error_message();
  };
  CHECK(refusal_of("3").find("3 does not run: it is PENDING (") == 0);
  CHECK(refusal_of("3.train").find("3.train does not run: it is PENDING (") == 0);
  CHECK(refusal_of("1.worker").find("experiment 1 has no 1.worker") == 0);
  CHECK(refusal_of("9").find("9") != std::string::npos);
  CHECK(refusal_of("words").find("'words' is not an ID") == 0);
  scene.runner.reset();
  scene.daemon.until([&] { return !scene.daemon.scheduler.model().hosts.begin()->second.connected; });
  CHECK(refusal_of("1") == "1.train is out of reach: h1 is not connected at present");
}

}  // namespace
}  // namespace dtrain::daemon
