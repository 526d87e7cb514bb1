#include "cli/failure_hint.h"

#include <doctest/doctest.h>

namespace dtrain::cli {
namespace {

pb::ShowReply failed_by(const char* reason) {
  pb::ShowReply reply;
  reply.mutable_experiment()->set_id("4");
  reply.mutable_experiment()->set_state("FAILED");
  reply.mutable_experiment()->set_reason(reason);
  reply.mutable_experiment()->set_started_unix_ms(1);
  reply.set_spec_yaml("project: p\ntrain: {run: python train.py}\n");
  return reply;
}

TEST_CASE("an ending has the hint that says what to change, and none that only starts it again") {
  CHECK(mending_hint(failed_by("4.train: exit code 127")).starts_with("no such command was found: PATH is that of"));
  CHECK(mending_hint(failed_by("4.train: out of memory: killed at its limit of 50 MiB")).ends_with("--set train.resources.mem=... gives it more"));
  CHECK(mending_hint(failed_by("its max-duration of 1m has passed")) == "dtrain rerun 4 --set train.max-duration=... gives it more");
  for (const char* reason : {"4.train: exit code 1", "4.train: out of memory", "4.train: its keeper died"}) {
    CHECK(mending_hint(failed_by(reason)).empty());
  }
  CHECK(failure_hint(failed_by("4.train: exit code 1")).empty());
  CHECK(failure_hint(failed_by("4.train: out of memory")).starts_with("dtrain rerun 4 starts it again"));
}

}  // namespace
}  // namespace dtrain::cli
