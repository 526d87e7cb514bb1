#include "schema/ids.h"

#include <doctest/doctest.h>

#include <random>

using namespace dtrain;

TEST_CASE("every role has a word that reads back") {
  for (const Role role : {Role::Train, Role::Master, Role::Chief, Role::Launcher, Role::Worker,
                          Role::Ps, Role::Evaluator, Role::Build, Role::Tensorboard}) {
    CHECK(parse_role(to_string(role)) == role);
  }
  CHECK_FALSE(parse_role("PS"));
  CHECK_FALSE(parse_role(""));
}

TEST_CASE("IDs read back as they are written") {
  for (const char* text : {"4", "4.2", "4294967295.4294967295"}) {
    const auto id = parse_experiment_id(text);
    REQUIRE(id.ok());
    CHECK(to_string(*id) == text);
  }
  for (const char* text : {"4.master", "4.train", "4.worker.1", "4.2.ps.1", "4.chief", "4.build",
                           "4.build.2", "4.2.tensorboard", "7.evaluator.3"}) {
    const auto id = parse_replica_id(text);
    REQUIRE(id.ok());
    CHECK(to_string(*id) == text);
    const auto pattern = parse_id_pattern(text);
    REQUIRE(pattern.ok());
    CHECK(to_string(*pattern) == text);
    CHECK(pattern->matches(*id));
  }
}

TEST_CASE("launches of builds are others than those of what is built for") {
  for (const auto& [text, launch] : {std::pair{"4@1", LaunchId{{4, 0}, 1}}, {"4.2@13", LaunchId{{4, 2}, 13}},
                                     {"4.build@1", LaunchId{{4, 0}, 1, true}}, {"4.2.build@7", LaunchId{{4, 2}, 7, true}}}) {
    CHECK(to_string(launch) == text);
    const auto read = parse_launch_id(text);
    REQUIRE_MESSAGE(read.ok(), text);
    CHECK(*read == launch);
  }
  for (const char* text : {"", "4", "4@", "4@0", "4@x", "4@1x", "@1", "4.train@1", "4.build.2@1", "4@1@1", "4.build"}) {
    CHECK_MESSAGE(!parse_launch_id(text).ok(), text);
  }
  CHECK(launch_of({{4, 2}, Role::Worker, 3}, 5) == LaunchId{{4, 2}, 5});
  CHECK(launch_of({{4, 2}, Role::Build, 3}, 5) == LaunchId{{4, 2}, 5, true});
}

TEST_CASE("what is no ID is refused with a reason") {
  for (const char* text : {"",
                           ".",
                           "0",
                           "04",
                           "+4",
                           "-4",
                           " 4",
                           "4 ",
                           "4.",
                           "4..1",
                           "4.0",
                           "4.01",
                           "4.2.3",
                           "4294967296",
                           "99999999999999999999",
                           "4.worker.0",
                           "4.worker.01",
                           "4.worker.1.2",
                           "4.master.1",
                           "4.Worker",
                           "4.workers.1",
                           "x",
                           "4.2.worker.1.1",
                           "4\n",
                           "4.2.worker.x",
                           "\xff",
                           "4.worker."}) {
    CAPTURE(text);
    const auto pattern = parse_id_pattern(text);
    REQUIRE_FALSE(pattern.ok());
    CHECK(pattern.error().code == Code::InvalidArgument);
    CHECK_FALSE(pattern.error().hint.empty());
    CHECK_FALSE(parse_replica_id(text).ok());
    CHECK_FALSE(parse_experiment_id(text).ok());
  }
  for (const char* several : {"1,2", "1-3", "1,3-5"}) {
    CHECK(parse_id_pattern(several).error().message.ends_with(" is not an ID: it names several; where a command takes several they stand apart (1 2), or as a range (1-3)"));
  }
  CHECK(parse_id_pattern("4.workr").error().message ==
        "'4.workr' is not an ID: there is no role 'workr'");
  CHECK(parse_experiment_id("4.worker.1").error().message ==
        "4.worker.1 names a replica, and an experiment is asked for");
  CHECK(parse_experiment_id("4.worker.1").error().hint == "the experiment is 4");
  CHECK(parse_replica_id("4.worker").error().hint == "for example 4.worker.1");
  CHECK(parse_replica_id("4").error().hint == "a replica looks like 4.master or 4.worker.1");
}

TEST_CASE("a long or hostile text does not reach the message whole") {
  const auto id = parse_id_pattern(std::string(1 << 20, 'x'));
  REQUIRE_FALSE(id.ok());
  CHECK(id.error().message.size() < 200);
  CHECK(parse_id_pattern("4\x1b[2J").error().message.find('\x1b') == std::string::npos);
}

TEST_CASE("a pattern matches what it names and nothing else") {
  const ExperimentId set{4, 0};
  const ExperimentId member{4, 2};
  const ReplicaId replica{member, Role::Worker, 1};
  auto pattern = [](const char* text) { return *parse_id_pattern(text); };
  CHECK(pattern("4").matches(set));
  CHECK(pattern("4").matches(member));
  CHECK(pattern("4").matches(replica));
  CHECK_FALSE(pattern("4.2").matches(set));
  CHECK(pattern("4.2").matches(member));
  CHECK_FALSE(pattern("4.3").matches(member));
  CHECK_FALSE(pattern("5").matches(set));
  CHECK(pattern("4.worker").matches(replica));
  CHECK(pattern("4.2.worker.1").matches(replica));
  CHECK(pattern("4.worker.1").matches(replica));
  CHECK_FALSE(pattern("4.worker.2").matches(replica));
  CHECK_FALSE(pattern("4.ps").matches(replica));
  CHECK(pattern("4.worker").matches(set));
  CHECK(pattern("4.worker").names_replicas());
  CHECK_FALSE(pattern("4.2").names_replicas());
}

TEST_CASE("a number that no experiment can have is told apart from what is no number") {
  CHECK(parse_id_pattern("99999999999999999999").error().message ==
        "'99999999999999999999' is not an ID: no experiment has a number that large");
  CHECK(parse_id_pattern("04").error().message.ends_with("without leading zeros"));
  CHECK(parse_id_pattern("x4").error().message.ends_with("from 1 on"));
}
