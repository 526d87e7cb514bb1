#include "daemon/outputs_api.h"

#include <future>
#include <optional>

#include "tests/integration/daemon/served_daemon.h"

namespace dtrain::daemon {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSubmission = "a";

// An experiment, launched on host h1.
struct Launched {
  test::TemporaryFolder folder;
  ServedDaemon daemon;
  std::optional<FakeRunner> runner{std::in_place, daemon};
  std::unique_ptr<pb::Outputs::Stub> stub = pb::Outputs::NewStub(daemon.channel);
  std::string experiment;
  const fs::path output = daemon.home.outputs() / "1";

  // `below`: where the home is; empty: in a folder of its own.
  explicit Launched(const Submission& submission = a_submission(kSubmission), const fs::path& below = {})
      : daemon(home_below(below.empty() ? folder.path() : below)) {
    REQUIRE(daemon.scheduler.submit(submission, {}).ok());
    daemon.until([&] { return runner->last(pb::ToRunner::kLaunch) != nullptr; });
    experiment = runner->last(pb::ToRunner::kLaunch)->launch().experiment();
  }
  pb::OutputsRequest as(const std::string& host = "h1", uint32_t attempt = 1, const std::string& submission = kSubmission) const {
    pb::OutputsRequest of;
    of.set_experiment(experiment);
    of.set_attempt(attempt);
    of.set_submission(submission);
    of.set_host_id(host);
    return of;
  }
  // A call takes its time: the loop goes on meanwhile.
  template <class Call>
  auto meanwhile(const Call& call) {
    bool done = false;
    auto answer = std::async(std::launch::async, [&] {
      auto result = call();
      boost::asio::post(daemon.loop, [&] { done = true; });
      return result;
    });
    daemon.until([&] { return done; });
    return answer.get();
  }
  std::pair<grpc::Status, std::vector<std::string>> list(const pb::OutputsRequest& of) {
    return meanwhile([&] {
      grpc::ClientContext context;
      const auto reader = stub->List(&context, of);
      std::vector<std::string> paths;
      for (pb::OutputList part; reader->Read(&part);) {
        for (const pb::OutputEntry& entry : part.entries()) paths.push_back(entry.path());
      }
      return std::pair(reader->Finish(), paths);
    });
  }
  std::pair<grpc::Status, std::string> read(const pb::OutputsRequest& of, const std::string& path) {
    return meanwhile([&] {
      grpc::ClientContext context;
      pb::ReadOutputsRequest request;
      *request.mutable_of() = of;
      request.add_paths(path);
      const auto reader = stub->Read(&context, request);
      std::string bytes;
      for (pb::OutputPart part; reader->Read(&part);) bytes += part.data();
      return std::pair(reader->Finish(), bytes);
    });
  }
  std::pair<grpc::Status, pb::WriteOutputsReply> write(const pb::OutputsRequest& of, const std::vector<pb::OutputPart>& parts,
                                                       const std::function<void()>& before_the_end = {}) {
    return meanwhile([&] {
      grpc::ClientContext context;
      pb::WriteOutputsReply reply;
      const auto writer = stub->Write(&context, &reply);
      pb::OutputParts first;
      *first.mutable_of() = of;
      writer->Write(first);
      for (size_t i = 0; i < parts.size(); ++i) {
        if (i + 1 == parts.size() && before_the_end) before_the_end();
        pb::OutputParts message;
        *message.add_parts() = parts[i];
        if (!writer->Write(message)) break;
      }
      writer->WritesDone();
      const grpc::Status status = writer->Finish();
      return std::pair(status, reply);
    });
  }
};

pb::OutputPart part(const std::string& path, const std::string& data, uint64_t size = 0, bool last = true) {
  pb::OutputPart message;
  message.mutable_entry()->set_path(path);
  message.mutable_entry()->set_size(size == 0 ? data.size() : size);
  message.mutable_entry()->set_mode(0600);
  message.set_data(data);
  message.set_last(last);
  return message;
}

TEST_CASE("the host of a replica writes and reads its experiment's outputs, and nobody else does") {
  Launched one;
  CHECK(one.write(one.as(), {part("a/b", "bytes")}).first.ok());
  CHECK(test::read_file(one.output / "a/b") == "bytes");
  CHECK(one.read(one.as(), "a/b").second == "bytes");
  CHECK(one.list(one.as()).second == std::vector<std::string>{"a", "a/b", "dtrain-configuration.yml"});
  for (const auto& other : {one.as("h2"), one.as("h1", 2), one.as("h1", 0), one.as("h1", 1, "b")}) {
    CAPTURE(other.ShortDebugString());
    CHECK(one.list(other).first.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
    CHECK(one.read(other, "a/b").first.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
    CHECK(one.write(other, {part("a/b", "other")}).first.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  }
  auto elsewhere = one.as();
  elsewhere.set_experiment("../1");
  CHECK(!one.list(elsewhere).first.ok());
  CHECK(test::read_file(one.output / "a/b") == "bytes");
}

TEST_CASE("a host that loses its part in the middle of a file changes nothing any more") {
  Launched one;
  CHECK(one.write(one.as(), {part("model", "of attempt 1")}).first.ok());
  const auto [status, reply] = one.write(one.as(), {part("model", "of a ghost, ", 18, false), part("model", "late", 18)}, [&] {
    std::promise<void> released;
    boost::asio::post(one.daemon.loop, [&] {
      pb::FromRunner message;
      message.mutable_released()->set_replica("1.train");
      message.mutable_released()->set_attempt(1);
      one.runner->say(message);
      released.set_value();
    });
    released.get_future().get();
    // The daemon has it once it has nothing of it to expect any more.
    pb::OverReply over;
    do {
      grpc::ClientContext context;
      pb::OverRequest request;
      request.add_experiments("1");
      request.add_submissions(kSubmission);
      REQUIRE(one.stub->Over(&context, request, &over).ok());
    } while (!over.over(0) && [&] {
      grpc::ClientContext context;
      const auto reader = one.stub->List(&context, one.as());
      pb::OutputList ignored;
      while (reader->Read(&ignored)) {}
      return reader->Finish().ok();
    }());
  });
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(test::read_file(one.output / "model") == "of attempt 1");
  for (const auto& each : fs::directory_iterator(one.output)) {
    CHECK(!each.path().filename().string().starts_with(".dtrain-unnamed"));
  }
}

TEST_CASE("one file that can't be taken is said, and the rest is there") {
  Launched one;
  const auto [status, reply] = one.write(one.as(), {part("good", "1"), part("../bad", "2"), part("short", "3", 10), part("better", "4")});
  CHECK(status.ok());
  REQUIRE(reply.troubles_size() == 2);
  CHECK(reply.troubles(0).path() == "../bad");
  CHECK(reply.troubles(1).path() == "short");
  CHECK(test::read_file(one.output / "good") == "1");
  CHECK(test::read_file(one.output / "better") == "4");
  CHECK(!fs::exists(one.output / "short"));
}

TEST_CASE("of a file that was withdrawn, or whose end never came, nothing is there") {
  Launched one;
  auto withdrawn = part("changing", "123", 5);
  withdrawn.set_withdrawn(true);
  CHECK(one.write(one.as(), {withdrawn}).first.ok());
  CHECK(!one.write(one.as(), {part("cut", "123", 5, false)}).first.ok());
  CHECK(one.list(one.as()).second == std::vector<std::string>{"dtrain-configuration.yml"});
  CHECK(std::distance(fs::directory_iterator(one.output), {}) == 1);
}

TEST_CASE("an experiment reads what it goes on from, as its Spec names it, and no other's") {
  test::TemporaryFolder folder;
  const fs::path outputs = home_below(folder.path()).outputs();
  test::write_file(outputs / "77/model", "weights");
  test::write_file(outputs / "78/model", "of others");
  Submission submission = a_submission(kSubmission);
  submission.spec_yaml += "  env: {RESUME_DIR: '" + (outputs / "77").string() + "'}\n";
  submission.spec = parse_spec(submission.spec_yaml, {}).value();
  Launched one(submission, folder.path());
  auto of = one.as();
  of.set_resume((outputs / "77").string());
  CHECK(one.list(of).second == std::vector<std::string>{"model"});
  // Where a link of that name leads: both names are the same.
  fs::rename(outputs, folder / "disk");
  fs::create_symlink(folder / "disk", outputs);
  CHECK(one.list(of).second == std::vector<std::string>{"model"});
  CHECK(one.read(of, "model").second == "weights");
  CHECK(!one.read(of, "../78/model").first.ok());
  CHECK(one.write(of, {part("model", "worse")}).first.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(test::read_file(outputs / "77/model") == "weights");
  for (const fs::path& other : {outputs / "78", outputs, outputs / "77/..", fs::path("/etc")}) {
    of.set_resume(other.string());
    CHECK(one.list(of).first.error_code() == grpc::StatusCode::NOT_FOUND);
  }
  fs::create_symlink("../78", outputs / "77/way");
  Submission through = a_submission("c");
  through.spec_yaml += "  env: {RESUME_DIR: '" + (outputs / "77/way").string() + "'}\n";
  through.spec = parse_spec(through.spec_yaml, {}).value();
  REQUIRE(one.daemon.scheduler.submit(through, {}).ok());
  one.daemon.until([&] { return one.runner->count(pb::ToRunner::kLaunch) == 2; });
  of = one.as("h1", 1, "c");
  of.set_experiment(one.runner->last(pb::ToRunner::kLaunch)->launch().experiment());
  CHECK(one.list(of).first.ok());
  of.set_resume((outputs / "77/way").string());
  CHECK(one.list(of).first.error_code() == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("what is no output of this daemon's is not read, whatever a Spec says") {
  Launched one;
  Submission out = a_submission("b");
  out.spec_yaml += "  env: {RESUME_DIR: /etc}\n";
  out.spec = parse_spec(out.spec_yaml, {}).value();
  REQUIRE(one.daemon.scheduler.submit(out, {}).ok());
  one.daemon.until([&] { return one.runner->count(pb::ToRunner::kLaunch) == 2; });
  auto of = one.as("h1", 1, "b");
  of.set_experiment(one.runner->last(pb::ToRunner::kLaunch)->launch().experiment());
  of.set_resume("/etc");
  CHECK(one.list(of).first.error_code() == grpc::StatusCode::NOT_FOUND);
}

TEST_CASE("who asks which experiments are over is told of those that are not there, too") {
  Launched one;
  const auto over = one.meanwhile([&] {
    grpc::ClientContext context;
    pb::OverRequest request;
    pb::OverReply reply;
    for (const auto& [experiment, submission] : std::vector<std::pair<std::string, std::string>>{{"1", kSubmission}, {"1", "b"}, {"9", "x"}, {"?", ""}}) {
      request.add_experiments(experiment);
      request.add_submissions(submission);
    }
    REQUIRE(one.stub->Over(&context, request, &reply).ok());
    return std::vector<bool>(reply.over().begin(), reply.over().end());
  });
  CHECK(over == std::vector<bool>{false, true, true, true});
}

TEST_CASE("what can't be read is not over, so that no host deletes its outputs") {
  test::TemporaryFolder folder;
  const Home home = home_below(folder.path());
  leave_unreadable(home, {"a"});
  Launched one(a_submission("b"), folder.path());
  const bool over = one.meanwhile([&] {
    grpc::ClientContext context;
    pb::OverRequest request;
    pb::OverReply reply;
    request.add_experiments("1");
    request.add_submissions("a");
    REQUIRE(one.stub->Over(&context, request, &reply).ok());
    return reply.over(0);
  });
  CHECK(!over);
}

}  // namespace
}  // namespace dtrain::daemon
