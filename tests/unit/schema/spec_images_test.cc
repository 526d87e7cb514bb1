#include "schema/spec.h"

#include <doctest/doctest.h>

#include "tests/unit/schema/specs.h"

using namespace dtrain;
using namespace dtrain::tests;

namespace {

using Names = std::vector<std::string>;

std::string yaml_of(const std::string& train, const std::string& roles) {
  return "{project: x, train: {framework: tensorflow, run: a, " + train + " tensorflow: {distributed: {" + roles + "}}}}";
}

}  // namespace

TEST_CASE("where each role has an image nothing need be said of all, and the decider's is for who says none") {
  const Spec spec = spec_of(yaml_of("", "chief: {count: 1, image: a}, worker: {count: 2, image: b}, ps: {count: 1, image: a}"));
  CHECK(spec.image == "a");
  CHECK(spec.images() == Names{"a", "b"});
  CHECK(spec.role(Role::Ps)->image.empty());
  CHECK(spec_of(to_yaml(spec)) == spec);
  CHECK(spec_of(yaml_of("", "worker: {count: 2, image: b}")).image == "b");
  const auto some = parse_spec(yaml_of("", "worker: {count: 2, image: b}, ps: 1"), {});
  REQUIRE(!some.ok());
  CHECK(some.error().message.find("worker.image: the others would run on the hosts") != std::string::npos);
}

TEST_CASE("of an image that is refused nothing more is said with its roles") {
  const auto refused = parse_spec(yaml_of("image: ./rel,", "worker: 2, ps: {count: 1, image: b}"), {});
  REQUIRE(!refused.ok());
  CHECK(refused.error().message.find("train.image: got './rel'") != std::string::npos);
  CHECK(refused.error().message.find("ps.image") == std::string::npos);
}

TEST_CASE("an image beside the file is instead of all that it says, and none is without mounts, too") {
  const std::string yaml = yaml_of("image: {name: a, install: b}, mounts: [/m],", "worker: 2, ps: {count: 1, image: c}");
  const Spec other = spec_of(yaml, {.image = "d"});
  CHECK(other.images() == Names{"d"});
  CHECK(other.install == Names{"b"});
  CHECK(other.mounts.size() == 1);
  const Spec none = spec_of(yaml, {.image = ""});
  CHECK(none.images().empty());
  CHECK(none.mounts.empty());
  CHECK(spec_of(yaml_of("", "worker: 2"), {.image = "d"}).images() == Names{"d"});
  const auto wrong = parse_spec(yaml, {.image = "./rel"});
  REQUIRE(!wrong.ok());
  CHECK_MESSAGE(wrong.error().message.starts_with("--image ./rel: train.image.name: got './rel'"), wrong.error().message);
}
