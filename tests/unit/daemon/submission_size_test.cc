#include "daemon/submission_size.h"

#include <doctest/doctest.h>

#include "schema/expand.h"

namespace dtrain::daemon {
namespace {

Submission submission_of(const std::string& train) {
  Submission submission;
  submission.spec_yaml = fmt::format("{{project: p1, train: {}}}", train);
  auto spec = parse_spec(submission.spec_yaml, {});
  REQUIRE(spec.ok());
  submission.spec = std::move(spec).value();
  submission.shapes = shapes_of(submission.spec);
  return submission;
}

std::string refusal(const Submission& submission, const SubmissionExtras& extras = {}) {
  const Status checked = check_size(submission, extras);
  return checked.ok() ? "" : checked.error().message;
}

TEST_CASE("what a host is told of one launch fits one message") {
  const Submission one = submission_of("{run: x}");
  SubmissionExtras extras;
  CHECK(refusal(one, extras).empty());
  for (int i = 0; i < 20; ++i) extras.secrets[fmt::format("BIG{}", i)] = std::string(100'000, 'x');
  CHECK(refusal(one, extras).empty());
  extras.secrets["MORE"] = std::string(100'000, 'x');
  CHECK(refusal(one, extras).find("2.0 MB of variables from your shell") != std::string::npos);
  // A large gang leaves room for less.
  const Submission gang =
      submission_of("{run: x, framework: tensorflow, tensorflow: {distributed: {worker: 3000}}}");
  CHECK(refusal(gang).empty());
  extras.secrets.clear();
  extras.secrets["BIG"] = std::string(1'700'000, 'x');
  CHECK(refusal(gang, extras).find("for 3000 replicas") != std::string::npos);
}

TEST_CASE("a gang whose TF_CONFIGs would fill the memory is refused, in any member of a set") {
  const auto gang = [](const std::string& workers) {
    return submission_of("{run: x, framework: tensorflow, tensorflow: {distributed: {worker: " + workers +
                         "}}}");
  };
  CHECK(refusal(gang("3000")).empty());
  CHECK(refusal(gang("10000")).find("the TF_CONFIGs of 10000 replicas") == 0);
  CHECK(refusal(gang("[2, 10000]")).find("the TF_CONFIGs of 10000 replicas") == 0);
}

}  // namespace
}  // namespace dtrain::daemon
