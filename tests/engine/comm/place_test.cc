#include "engine/comm/place.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <map>
#include <string>
#include <utility>

namespace dtrain::engine {
namespace {

constexpr const char* kCluster =
    R"({"cluster":{"worker":["a:1","b:2"],"ps":["c:3"]},"task":{"type":"%","index":#}})";

std::string with(std::string text, const std::string& type, const std::string& index) {
  text.replace(text.find('%'), 1, type);
  text.replace(text.find('#'), 1, index);
  return text;
}

TEST_CASE("no TF_CONFIG is one process by itself") {
  const auto place = parse_place("", 7);
  REQUIRE(place.ok());
  CHECK(place->alone());
  CHECK(place->is_master());
  CHECK(place->key == 7);
}

TEST_CASE("a worker and a ps find their places") {
  const auto worker = parse_place(with(kCluster, "worker", "1"), 1);
  REQUIRE(worker.ok());
  CHECK(worker->role == Role::Worker);
  CHECK(worker->address() == "b:2");
  CHECK(!worker->is_master());
  CHECK(!worker->alone());
  const auto ps = parse_place(with(kCluster, "ps", "0"), 1);
  REQUIRE(ps.ok());
  CHECK(ps->role == Role::Ps);
  CHECK(ps->address() == "c:3");
  CHECK(process_name(ps->role, ps->index, ps->address()) == "ps 1 at c:3");
}

TEST_CASE("a chief or master is worker 0, before the others") {
  for (const std::string first : {"chief", "master"}) {
    const std::string cluster = R"({"cluster":{")" + first +
                                R"(":["m:9"],"worker":["a:1"]},"task":{"type":"%","index":#}})";
    const auto master = parse_place(with(cluster, first, "0"), 1);
    REQUIRE(master.ok());
    CHECK(master->is_master());
    CHECK(master->address() == "m:9");
    const auto worker = parse_place(with(cluster, "worker", "0"), 1);
    REQUIRE(worker.ok());
    CHECK(worker->index == 1);
    CHECK(worker->address() == "a:1");
  }
}

TEST_CASE("what is wrong is named") {
  const std::pair<std::string, const char*> cases[] = {
      {"{", "parse error"},
      {"[]", "not an object"},
      {"{}", "cluster"},
      {R"({"cluster":{"worker":["a:1"]}})", "task"},
      {R"({"cluster":{"worker":["a:1"]},"task":{"index":0}})", "task.type"},
      {R"({"cluster":{"worker":["a:1"]},"task":{"type":"worker","index":"0"}})", "task.index"},
      {R"({"cluster":{"worker":"a:1"},"task":{"type":"worker","index":0}})", "cluster.worker"},
      {R"({"cluster":{"worker":["a:1",2]},"task":{"type":"worker","index":0}})",
       "cluster.worker[1]"},
      {R"({"cluster":{"worker":["a"]},"task":{"type":"worker","index":0}})", "host:port"},
      {R"({"cluster":{"ps":["a:1"]},"task":{"type":"ps","index":0}})", "without workers"},
      {with(kCluster, "worker", "2"), "no worker 2"},
      {with(kCluster, "worker", "-1"), "no worker -1"},
      {R"({"cluster":{"chief":["m:9"],"worker":["a:1"]},"task":{"type":"worker","index":9223372036854775807}})",
       "no worker 9223372036854775807"},
      {with(kCluster, "evaluator", "0"), "evaluator"},
  };
  for (const auto& [text, part] : cases) {
    CAPTURE(text);
    const auto place = parse_place(text, 1);
    REQUIRE(!place.ok());
    CHECK(place.error().code == Code::InvalidArgument);
    CHECK(place.error().message.find("TF_CONFIG: ") == 0);
    CHECK(place.error().message.find(part) != std::string::npos);
  }
}

TEST_CASE("each launch has its own key") {
  CHECK(launch_key("1", "23") != launch_key("12", "3"));
  CHECK(launch_key("e", "1") != launch_key("e", "2"));
  CHECK(launch_key("e", "1") == launch_key("e", "1"));
}

TEST_CASE("experiments of two daemons are not the same, though both have the number 1") {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value != nullptr ? value : "");
  };
  const std::map<std::string, std::string> before = {{"EXPERIMENT_ID", variable("EXPERIMENT_ID")},
                                                     {"DTRAIN_SUBMISSION", variable("DTRAIN_SUBMISSION")}};
  const auto of = [](const char* submission) {
    ::setenv("EXPERIMENT_ID", "1", 1);
    ::setenv("DTRAIN_SUBMISSION", submission, 1);
    const auto place = place_from_environment();
    REQUIRE(place.ok());
    return std::pair(experiment_from_environment(), place->key);
  };
  const auto one = of("9f"), other = of("a0"), again = of("9f");
  for (const auto& [name, value] : before) ::setenv(name.c_str(), value.c_str(), 1);
  CHECK(one == again);
  CHECK(one.first != other.first);
  CHECK(one.second != other.second);
}

}  // namespace
}  // namespace dtrain::engine
