#include "cli/hosts_verdict.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "cli/hosts_test.h"

namespace dtrain::cli {

namespace {

pb::HostInfo host_info(const std::string& name) {
  pb::HostInfo info;
  info.set_name(name);
  info.set_id(name + "-id");
  info.set_address("at-" + name);
  info.set_connected(true);
  info.set_cpus_free(1);
  info.set_memory_free_bytes(uint64_t{1} << 30);
  info.set_port_first(20'000);
  info.set_port_last(20'099);
  return info;
}

TestedHost good_host(const std::string& name) {
  TestedHost host;
  host.info = host_info(name);
  host.address = "at-" + name;
  host.port = 20'003;
  host.started_after_ms = 400;
  host.began = ProbeBegan{"sent"};
  host.work = ProbeDisk{false, 400e6, uint64_t{9} << 30, ""};
  host.output = ProbeDisk{true, 300e6, uint64_t{9} << 30, ""};
  host.wrote = ProbeWrote{"wrote"};
  host.arrived = host.done = true;
  return host;
}

HostsTest good_test(int count) {
  HostsTest test;
  test.id = "7";
  test.sent = "sent";
  for (int i = 0; i < count; ++i) test.hosts.push_back(good_host("n" + std::to_string(i)));
  for (int i = 0; i < count; ++i) {
    for (int j = 0; j < count; ++j) {
      if (i == j) continue;
      test.hosts[static_cast<size_t>(i)].reaches[j] = {j, Reach::Reached, ""};
      if (i < j) test.hosts[static_cast<size_t>(i)].links[j] = {j, 0.25, 1.2e9, 1.1e9, 3};
    }
  }
  return test;
}

HostsTrouble only_trouble(const HostsTest& test) {
  const auto troubles = troubles_of(test);
  REQUIRE_MESSAGE(troubles.size() == 1, (troubles.empty() ? "" : troubles.front().text));
  return troubles.front();
}

bool starts_with(const std::string& text, const std::string& begin) { return text.rfind(begin, 0) == 0; }

}  // namespace

TEST_CASE("where all is well it says so, with what was measured") {
  const HostsTest test = good_test(2);
  CHECK(troubles_of(test).empty());
  CHECK(render_hosts_test(test, {}) ==
        "HOST       STATE STARTED DISK       FREE     OUTPUTS    SLOWEST LINK    ROUND TRIP\n"
        "n0         ok    0.4 s   381.5 MB/s 9.0 GB   286.1 MB/s 8.8 Gbit/s (n1) 0.25 ms (n1)\n"
        "n1         ok    0.4 s   381.5 MB/s 9.0 GB   286.1 MB/s 8.8 Gbit/s (n0) 0.25 ms (n0)\n"
        "All is well with 2 hosts\n");
  CHECK(troubles_of(good_test(1)).empty());
}

TEST_CASE("who can't reach whom is told, with the address, the port and what to do") {
  HostsTest test = good_test(2);
  test.hosts[0].reaches[1] = {1, Reach::TimedOut, "Connection timed out"};
  const HostsTrouble closed = only_trouble(test);
  CHECK(closed.text == "n0 can't reach n1 at at-n1:20003: connection timed out");
  CHECK(starts_with(closed.hint, "does a firewall there let ports 20000-20099 (`ports` below `host:` in its config.yml) through?"));
  test.hosts[0].reaches[1] = {1, Reach::NoName, "Name or service not known"};
  CHECK(starts_with(only_trouble(test).hint, "n0 does not know that name"));
  test.hosts[0].reaches[1] = {1, Reach::Stranger, "somebody else answers there"};
  CHECK(starts_with(only_trouble(test).hint, "is at-n1 really the address of n1?"));
  CHECK(render_hosts_test(test, {}).find("n0         trouble") != std::string::npos);
}

TEST_CASE("a link that is slow, or slower than most, is told") {
  HostsTest two = good_test(2);
  two.hosts[0].links[1].received_bytes_per_s = 5e6;
  CHECK(only_trouble(two).text == "only 40 Mbit/s go between n0 and n1");
  HostsTest three = good_test(3);
  three.hosts[1].links[2].sent_bytes_per_s = 100e6;
  three.hosts[2].info.set_replicas(2);
  CHECK(only_trouble(three).text == "only 800 Mbit/s go between n1 and n2, where 8.8 Gbit/s is usual; 2 replicas of other experiments ran there meanwhile");
  two.hosts[0].links[1].received_bytes_per_s = 0;
  CHECK(starts_with(only_trouble(two).text, "what n0 and n1 sent each other did not get there"));
  two = good_test(2);
  two.hosts[0].links[1].round_trip_ms = 45;
  CHECK(only_trouble(two).text == "n0 and n1 are 45 ms from each other");
}

TEST_CASE("a clock that is set otherwise than the others is told of its host alone") {
  HostsTest test = good_test(3);
  test.hosts[0].links[1].clock_ahead_ms = 3200;
  test.hosts[1].links[2].clock_ahead_ms = -3200;
  CHECK(only_trouble(test).text == "n1 has its clock 3.2 s ahead of those of the others");
  HostsTest two = good_test(2);
  two.hosts[0].links[1].clock_ahead_ms = 2000;
  CHECK(only_trouble(two).text == "n0 has its clock 2.0 s behind those of the others");
}

TEST_CASE("what a disk has or does not is told") {
  HostsTest test = good_test(1);
  test.hosts[0].work->trouble = "No space left on device";
  CHECK(only_trouble(test).text == "n0 can't write to its working directories: No space left on device");
  test.hosts[0].work = ProbeDisk{false, 400e6, uint64_t{100} << 20, ""};
  CHECK(only_trouble(test).text == "n0 has only 100.0 MB left for its working directories");
  test.hosts[0].work = good_host("n0").work;
  test.hosts[0].output->bytes_per_s = 2e6;
  CHECK(starts_with(only_trouble(test).text, "n0 writes only 1.9 MB/s to OUTPUT_DIR"));
}

TEST_CASE("what did not come here, and who did not come to an end, is told once") {
  HostsTest test = good_test(1);
  test.hosts[0].arrived = false;
  CHECK(starts_with(only_trouble(test).text, "n0 wrote a file to OUTPUT_DIR which is not here"));
  test.hosts[0].done = false;
  CHECK(only_trouble(test).text == "n0 did not come to its end in time");
  test.hosts[0].is_away = true;
  CHECK(only_trouble(test).text == "n0 went away while it was tested");
  test = good_test(1);
  test.hosts[0].began->sent = "other";
  CHECK(only_trouble(test).text == "n0 has not what was sent with the experiment");
  test.hosts[0].end = "exit code 127";
  CHECK(only_trouble(test).text == "n0 can't run it: exit code 127");
  test = good_test(2);
  test.hosts[1] = TestedHost();
  test.hosts[1].info = host_info("n1");
  test.not_started = "nothing had started within 60 s on n1: needs 1 cpu";
  CHECK(only_trouble(test).text == test.not_started);
}

TEST_CASE("those that are away or drained are told, and who is asked for has to be there") {
  pb::HostsReply known;
  for (const char* name : {"a", "b", "c", "d"}) *known.add_hosts() = host_info(name);
  known.mutable_hosts(1)->set_connected(false);
  known.mutable_hosts(2)->set_drained(true);
  const auto all = hosts_to_test(known, {});
  REQUIRE(all.ok());
  CHECK(all->hosts.size() == 2);
  CHECK(only_trouble(*all).text == "b is away");
  CHECK(render_hosts_test(*all, {}).find("c: not tested, it is drained; dtrain hosts undrain c") != std::string::npos);
  const auto asked = hosts_to_test(known, {"a", "c"});
  REQUIRE(asked.ok());
  CHECK(asked->hosts.size() == 1);
  CHECK(only_trouble(*asked).text == "c is drained");
  const auto unknown = hosts_to_test(known, {"a", "e"});
  REQUIRE(!unknown.ok());
  CHECK(unknown.error().code == Code::NotFound);
  CHECK(unknown.error().hint == "known hosts: a, b, c, d");
  // One without an address shares no gang, and is tested alone.
  known.mutable_hosts(0)->clear_address();
  CHECK(hosts_to_test(known, {})->hosts.size() == 1);
  CHECK(hosts_to_test(known, {"a"})->hosts.size() == 1);
  pb::HostsReply none;
  CHECK(hosts_to_test(none, {}).error().code == Code::FailedPrecondition);
}

TEST_CASE("what is submitted is one replica on each host, and is understood as it was meant") {
  for (const int count : {1, 2, 5}) {
    const Spec spec = hosts_test_spec(good_test(count));
    CHECK(spec.replica_count() == count);
    const auto again = parse_spec(to_yaml(spec), {});
    REQUIRE_MESSAGE(again.ok(), again.error().message);
    CHECK(*again == spec);
    CHECK(spec.hosts.size() == static_cast<size_t>(count));
    CHECK((count == 1 || spec.roles.back().per_host == 1));
  }
}

TEST_CASE("as JSON it is one object, with null for what is not known") {
  HostsTest test = good_test(2);
  test.hosts[0].reaches[1] = {1, Reach::Refused, "Connection refused"};
  test.hosts[0].links.clear();
  test.others.push_back({"c", "is drained", "", false});
  const auto json = nlohmann::json::parse(to_json(test));
  CHECK(json["ok"] == false);
  CHECK(json["experiment"] == "7");
  CHECK(json["hosts"][1]["work"]["free_bytes"] == uint64_t{9} << 30);
  CHECK(json["links"][0]["reached"] == false);
  CHECK(json["links"][0]["round_trip_ms"].is_null());
  CHECK(json["troubles"][0]["other"] == "n1");
  CHECK(json["not_tested"][0]["host"] == "c");
  CHECK(json["rounds_left_out"] == 0);
}

}  // namespace dtrain::cli
