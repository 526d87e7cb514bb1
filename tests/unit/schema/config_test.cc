#include "schema/config.h"

#include <doctest/doctest.h>

namespace dtrain {
namespace {

Config config_of(std::string_view yaml) {
  auto config = parse_config(yaml, "config.yml");
  if (!config.ok()) FAIL(config.error().message);
  return std::move(config).value();
}

std::string config_refusal(std::string_view yaml) {
  const auto config = parse_config(yaml, "config.yml");
  REQUIRE(!config.ok());
  CHECK(config.error().code == Code::InvalidArgument);
  return config.error().message;
}

TEST_CASE("every key may be left out") {
  for (const char* yaml : {"", "# nothing yet\n", "{}\n", "sync: {}\nhost:\n"}) {
    const Config config = config_of(yaml);
    CHECK(config.address.empty());
    CHECK(config.listen.empty());
    CHECK(!config.cpus);
    CHECK(!config.memory_bytes);
    CHECK(config.ports == PortRange{20'000, 29'999});
    CHECK(config.spool_limit_bytes == uint64_t{4} << 30);
    CHECK(config.runner_timeout_ms == 60'000);
    CHECK(!config.cache_bytes);
    CHECK(!config.keep_ended_ms);
    CHECK(!config.keep_log_bytes);
    CHECK(config.sync_warn_bytes == uint64_t{50} << 20);
    CHECK(config.sync_ask_bytes == uint64_t{1} << 30);
    CHECK(config.sync_file_bytes_max == uint64_t{10} << 30);
  }
}

TEST_CASE("every key is read; a size without unit counts MiB") {
  const Config config = config_of(
      "host: {address: 10.0.0.5, cpus: 6.5, mem: 24GiB, ports: 21000-21999, cache: 5GiB, labels: [fast, rack=3]}\n"
      "listen: 10.0.0.5:7077\n"
      "spool-limit: 512\n"
      "runner-timeout: 1m30s\n"
      "keep: {ended: 90d, logs: 50GiB}\n"
      "sync: {warn: 100MB, ask: 2GiB, max-file: 1.5GiB}\n");
  CHECK(config.address == "10.0.0.5");
  CHECK(config.listen == "10.0.0.5:7077");
  CHECK(config.cpus == 6.5);
  CHECK(config.memory_bytes == uint64_t{24} << 30);
  CHECK(config.ports == PortRange{21'000, 21'999});
  CHECK(config.spool_limit_bytes == uint64_t{512} << 20);
  CHECK(config.runner_timeout_ms == 90'000);
  CHECK(config.cache_bytes == uint64_t{5} << 30);
  CHECK(config.labels == std::vector<std::string>{"fast", "rack=3"});
  CHECK(config.keep_ended_ms == int64_t{90} * 24 * 3600 * 1000);
  CHECK(config.keep_log_bytes == uint64_t{50} << 30);
  CHECK(config.sync_warn_bytes == 100'000'000);
  CHECK(config.sync_ask_bytes == uint64_t{2} << 30);
  CHECK(config.sync_file_bytes_max == uint64_t{3} << 29);
}

TEST_CASE("a size of many digits is one, and none that is given counts as left out") {
  const auto config = parse_config("host: {mem: 1638.3999999999999}\nquotas: [{user: anna, mem: 307.20000000000005}]\n", "config.yml");
  REQUIRE(config.ok());
  CHECK(config->memory_bytes == 1717986918);
  CHECK(config->quotas[0].memory_bytes == 322122547);
  CHECK(config_refusal("quotas: [{user: anna, mem: 307.2000000000000512345}]\n") ==
        "config.yml:1:28: quotas.mem: got '307.2000000000000512345', expected a size such as 16GiB");
}

TEST_CASE("mistakes are told with their place and what was meant") {
  CHECK(config_refusal("sync:\n  max-flie: 1GiB\n") ==
        "config.yml:2:3: sync.max-flie: unknown key; did you mean 'max-file'?");
  CHECK(config_refusal("ports: 1-2\n") == "config.yml:1:1: ports: unknown key; did you mean host.ports?");
  CHECK(config_refusal("host: {ports: 30000-20000}\n") ==
        "config.yml:1:15: host.ports: got '30000-20000', expected a range of ports such as "
        "20000-29999");
  CHECK(config_refusal("host: {address: bad addr}\n") ==
        "config.yml:1:17: host.address: got 'bad addr', expected an IP address or a name by which "
        "other hosts reach this one, such as 10.0.0.5");
  CHECK(config_refusal("spool-limit: lots\n") ==
        "config.yml:1:14: spool-limit: got 'lots', expected a size such as 16GiB, 500MB or 4096 "
        "(MiB)");
  CHECK(config_refusal("spool-limit: 1MiB\n") ==
        "config.yml:1:14: spool-limit: got 1MiB, expected at least 16MiB");
  CHECK(config_refusal("runner-timeout: 500ms\n") ==
        "config.yml:1:17: runner-timeout: got 500ms, expected 1s to 366d");
  CHECK(config_refusal("runner-timeout: 367d\n") ==
        "config.yml:1:17: runner-timeout: got 367d, expected 1s to 366d");
  // 90 days, or 90 seconds, after which everything is forgotten?
  CHECK(config_refusal("keep: {ended: 90}\n") ==
        "config.yml:1:15: keep.ended: got '90', expected a duration such as 60s, 12h or 90d");
  CHECK(config_refusal("runner-timeout: 10\n") ==
        "config.yml:1:17: runner-timeout: got '10', expected a duration such as 60s, 12h or 90d");
  CHECK(config_refusal("- a\n").starts_with("config.yml:1:1: "));
  CHECK(config_refusal("host: [\n").find("not valid YAML") != std::string::npos);
}

TEST_CASE("a daemon listens on an IP address and a port") {
  for (const std::string place : {"0.0.0.0:7077", "'[fd00::5]:1'", "'[::]:0'"}) {
    CHECK_MESSAGE(parse_config("listen: " + place, "config.yml").ok(), place);
  }
  for (const std::string place : {"7077", "trainer:7077", "10.0.0.5", "10.0.0.5:70000", "fd00::5:1", "[]"}) {
    const std::string why = config_refusal("listen: '" + place + "'");
    CHECK_MESSAGE(why.find("expected an IP address of this machine and a port") != std::string::npos, place);
  }
}

TEST_CASE("a range of ports is two numbers that a port can be, in order") {
  CHECK(parse_port_range("1-65535") == PortRange{1, 65'535});
  CHECK(parse_port_range("80-80") == PortRange{80, 80});
  for (const char* text : {"", "-", "1", "1-", "-1", "0-9", "9-8", "1-65536", "1-2-3", " 1-2"}) {
    CHECK(!parse_port_range(text));
  }
}

TEST_CASE("an address is what another host may dial") {
  for (const char* text : {"10.0.0.5", "fd00::5", "node-1", "node_1.cluster.example", "0x5a"}) {
    CHECK_MESSAGE(is_host_address(text), text);
  }
  for (const char* text : {"", "bad addr", "127.0.0.1", "127.1.2.3", "localhost", "::1", "::", "0.0.0.0",
                           "10.0.0.500", "10.0.0.5:80", "[fd00::5]", "fe80::1%eth0", "tcp:10.0.0.5",
                           "node/1", "-n1", ".n1", "n1.", "a\tb"}) {
    CHECK_MESSAGE(!is_host_address(text), text);
  }
  CHECK(!is_host_address(std::string(254, 'n')));
}

TEST_CASE("quotas: the first that is for a user counts, and none is in vain") {
  using Quotas = std::vector<UserQuota>;
  CHECK(config_of("quotas: [{user: anna, gpus: 8, cpus: 1.5, mem: 64GiB}, {gpus: 0}]\n").quotas ==
        Quotas{{"anna", 1.5, uint64_t{64} << 30, 8}, {"", std::nullopt, std::nullopt, 0}});
  CHECK(config_of("quotas: [{user: anna}, {mem: 512}]\n").quotas == Quotas{{"anna", std::nullopt, std::nullopt, std::nullopt}, {"", std::nullopt, uint64_t{512} << 20, std::nullopt}});
  CHECK(config_of("").quotas.empty());
  const auto refused = [](const std::string& yaml, const std::string& part) {
    const std::string text = config_refusal(yaml);
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  refused("quotas: [{gpus: 4}, {user: anna, gpus: 8}]\n", "config.yml:1:21: quotas: one before is for anna, too, and counts");
  refused("quotas: [{gpus: 4}, {gpus: 8}]\n", "one before is for all users, too");
  refused("quotas: [{user: anna, gpu: 4}]\n", "did you mean 'gpus'?");
  refused("quotas: [{gpus: 1.5}]\n", "expected a whole number");
  refused("quotas: {gpus: 4}\n", "expected a list of quotas");
  refused("quotas: [{user: ''}]\n", "quotas[1].user");
}

TEST_CASE("fair-share: alike for all, or by weights") {
  using Weights = std::vector<UserWeight>;
  CHECK(config_of("").fair_share.empty());
  CHECK(config_of("fair-share: false\n").fair_share.empty());
  CHECK(config_of("fair-share: true\n").fair_share == Weights{{"", 1}});
  CHECK(config_of("fair-share: [{user: anna, weight: 2}, {weight: 0.5}]\n").fair_share == Weights{{"anna", 2}, {"", 0.5}});
  const auto refused = [](const std::string& yaml, const std::string& part) {
    const std::string text = config_refusal(yaml);
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  refused("fair-share: [{weight: 2}, {user: anna, weight: 1}]\n", "config.yml:1:27: fair-share: one before is for anna, too, and counts");
  refused("fair-share: [{user: anna}]\n", "weight");
  refused("fair-share: [{user: anna, weight: 0}]\n", "fair-share[1].weight");
  refused("fair-share: [{user: anna, weight: nan}]\n", "fair-share[1].weight");
  refused("fair-share: yes please\n", "true, or a list of weights");
  refused("fairshare: true\n", "did you mean 'fair-share'?");
}

TEST_CASE("pools of a Slurm: what is left out, and what is wrong") {
  const std::string head = "listen: 10.0.0.1:7077\npools:\n  - slurm: ";
  const SlurmPool pool = config_of(head + "{cpus: 8, mem: 64GiB, max-hosts: 4, time: 4h}\n").pools.at(0);
  CHECK(pool.name == "slurm");
  CHECK(pool.cpus == 8);
  CHECK(pool.memory_bytes == uint64_t{64} << 30);
  CHECK(pool.gpus == 0);
  CHECK(pool.hosts_max == 4);
  CHECK(pool.time_ms == 4 * 3'600'000);
  CHECK(pool.idle_release_ms == 300'000);
  const SlurmPool named = config_of(head + "{partition: a100, cpus: 8, mem: 64GiB, gpus: 4, max-hosts: 4, time: 4h, idle-release: 1m, "
                                        "options: [--account=lab], dtrain: /opt/dtrain}\n").pools.at(0);
  CHECK(named.name == "a100");
  CHECK(named.options == std::vector<std::string>{"--account=lab"});
  CHECK(named.dtrain == "/opt/dtrain");
  const auto refused = [&](const std::string& text, const std::string& why) {
    const std::string said = config_refusal(text);
    CHECK_MESSAGE(said.find(why) != std::string::npos, said);
  };
  refused(head + "{cpus: 8, mem: 64GiB, time: 4h}\n", "max-hosts");
  refused(head + "{cpus: 8, mem: 64GiB, max-hosts: 4, time: 30s}\n", "pools.slurm.time: got 30s, expected at least 1m");
  refused(head + "{cpus: 0, mem: 64GiB, max-hosts: 4, time: 4h}\n", "cpus");
  refused(head + "{cpus: 8, mem: 64GiB, max-hosts: 4, time: 4h, options: [account]}\n", "an option of sbatch");
  for (const char* own : {"--job-name=mine", "-Jmine", "--wait", "--array=1-2", "--nodes=2", "--time=1", "-t1"}) {
    refused(head + "{cpus: 8, mem: 64GiB, max-hosts: 4, time: 4h, options: [" + own + "]}\n", "an option of sbatch");
  }
  for (const char* wrong : {"5", "{}", "", "null"}) refused(head + wrong + "\n", "pools");
  refused("listen: 10.0.0.1:7077\npools: [5, {}, {pbs: {cpus: 4}}]\n", "pools");
  refused(head + "{cpus: 8, mem: 64GiB, max-hosts: 4, time: 4h, name: a b}\n", "a name for its hosts");
  refused(head + "{cpus: 8, mem: 64GiB, max-hosts: 4, time: 4h, dtrain: bin/dtrain}\n", "a path from /");
  refused(head + "{cpus: 8, mem: 1, max-hosts: 4, time: 4h}\n  - slurm: {cpus: 8, mem: 1, max-hosts: 4, time: 4h}\n",
          "two pools are called slurm");
  refused("pools: [{slurm: {cpus: 8, mem: 64GiB, max-hosts: 4, time: 4h}}]\n", "`listen: ADDRESS:PORT` says where");
}

}  // namespace
}  // namespace dtrain
