// dtrain rerun against a daemon of canned answers, that remembers what was submitted.
#include <doctest/doctest.h>

#include "fake_daemon.h"
#include "schema/expand.h"
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

TEST_CASE("where what was searched over is fixed, each member is run once") {
  const ScratchHome scratch;
  SubmittedDaemon daemon(scratch.home());
  daemon.show.mutable_experiment()->set_id("4");
  daemon.show.mutable_experiment()->set_members(4);
  daemon.show.mutable_experiment()->set_state("FINISHED");
  daemon.show.set_spec_yaml("project: p\ntrain: {run: x, combine: zip, parameters: {a: [0.1, 0.2, 0.3, 0.4], b: [1, 2, 1, 2]}}\n");
  CHECK(rerun({}).err.find("left out") == std::string::npos);
  const std::string said = rerun({"-p", "a=0.5"}).err;
  CHECK_MESSAGE(said.starts_with("Note: 2 of 4 members would be the same as others now, and are left out\n"), said);
  rerun({"--set", "train.parameters.a=0.5", "-p", "b=3"});
  REQUIRE(daemon.submitted.size() == 3);
  CHECK(daemon.submitted[0].member_count() == 4);
  REQUIRE(daemon.submitted[1].member_count() == 2);
  CHECK(member_parameters(daemon.submitted[1], 2) == std::map<std::string, std::string>{{"a", "0.5"}, {"b", "2"}});
  CHECK(daemon.submitted[2].member_count() == 1);
  // Who has them several times over means that.
  daemon.show.set_spec_yaml("project: p\ntrain: {run: x, combine: zip, parameters: {a: [1, 1, 2, 2], b: [1, 1, 1, 1]}}\n");
  CHECK(rerun({"-p", "a=3"}).code == 0);
  CHECK(daemon.submitted.back().member_count() == 4);
}

}  // namespace
}  // namespace dtrain::cli
