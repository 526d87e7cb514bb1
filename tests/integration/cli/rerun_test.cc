// dtrain rerun against a daemon of canned answers, that remembers what was submitted.
#include <doctest/doctest.h>

#include "fake_daemon.h"
#include "schema/spec.h"
#include "tests/support/process.h"

namespace dtrain::cli {
namespace {

class SubmittedDaemon final : public FakeDaemon {
 public:
  using FakeDaemon::FakeDaemon;

  grpc::Status Submit(grpc::ServerContext*, grpc::ServerReaderWriter<pb::SubmitReply, pb::SubmitRequest>* stream) override {
    pb::SubmitRequest request;
    stream->Read(&request);
    submitted.push_back(parse_spec(request.header().spec_yaml(), {}).value());
    pb::SubmitReply reply;
    reply.mutable_accepted()->set_number(5);
    stream->Write(reply);
    return grpc::Status::OK;
  }

  std::vector<Spec> submitted;
};

tests::Output rerun(std::vector<std::string> words) {
  words.insert(words.begin(), {BIN_DIR "/dtrain", "rerun", "4", "-d"});
  return tests::run({words, "/", {}, {}});
}

TEST_CASE("what may still write is gone on from once it is over, or not at all") {
  const ScratchHome scratch;
  SubmittedDaemon daemon(scratch.home());
  pb::ExperimentInfo& before = *daemon.show.mutable_experiment();
  before.set_id("4");
  daemon.show.set_spec_yaml("project: p\ntrain: {run: x}\n");
  daemon.show.set_output_dir("/");
  for (const char* state : {"PENDING", "RUNNING", "STOPPING", "RESTARTING"}) {
    before.set_state(state);
    const tests::Output refused = rerun({"--resume"});
    CHECK(refused.code == 2);
    CHECK(refused.err == std::string("dtrain: 4 is ") + state + ", and may still write what this would go on from\n"
                         "  hint: dtrain rerun 4 --resume --after-end 4 begins when it is over; dtrain kill 4 ends it\n");
    CHECK(rerun({"--resume", "--after-end", "3"}).code == 2);
  }
  REQUIRE(daemon.submitted.empty());
  CHECK(rerun({}).code == 0);
  CHECK(rerun({"--resume", "--after-end", "4"}).code == 0);
  CHECK(rerun({"--resume", "--after", "3,4"}).code == 0);
  before.set_state("SUSPENDED");
  CHECK(rerun({"--resume"}).code == 0);
  before.set_state("FAILED");
  CHECK(rerun({"--resume"}).code == 0);
  REQUIRE(daemon.submitted.size() == 5);
  CHECK(daemon.submitted[1].after_end == std::vector{ExperimentId{4, 0}});
  CHECK(daemon.submitted[1].env.at("RESUME_DIR") == "/");
}

}  // namespace
}  // namespace dtrain::cli
