// kill, hosts and daemon: what they say.
#include <doctest/doctest.h>

#include "cli/daemon.h"
#include "cli/hosts.h"
#include "cli/kill.h"
#include "cli/users.h"
#include "schema/version.h"

namespace dtrain::cli {
namespace {

TEST_CASE("killing what is over says since when") {
  pb::KillReply::Item item;
  item.set_id("4");
  item.set_already_over(true);
  item.set_message("4 is already FINISHED");
  pb::ExperimentInfo experiment;
  experiment.set_state("FINISHED");
  CHECK(render_killed(item, experiment, 1'180'000) == "4 is already FINISHED\n");
  experiment.set_finished_unix_ms(1'000'000);
  CHECK(render_killed(item, experiment, 1'180'000) ==
        "4 is already FINISHED (ended 3 minutes ago)\n");
}

TEST_CASE("killed is only what has ended") {
  pb::KillReply::Item item;
  item.set_id("4");
  pb::ExperimentInfo experiment;
  experiment.set_state("KILLED");
  experiment.set_finished_unix_ms(1'000'000);
  CHECK(render_killed(item, experiment, 1'000'000) == "4 is killed\n");
  experiment.set_state("STOPPING");
  CHECK(render_killed(item, experiment, 1'000'000) ==
        "4 is being killed; dtrain wait 4 returns when it has ended\n");
  item.set_already_over(true);
  item.set_message("4 is already STOPPING");
  CHECK(render_killed(item, experiment, 1'000'000) ==
        "4 is already STOPPING; dtrain wait 4 returns when it has ended\n");
  // It ended between the daemon's two answers.
  experiment.set_state("KILLED");
  CHECK(render_killed(item, experiment, 1'000'000) == "4 is already KILLED (ended just now)\n");
  // What can't be read has no state, and nothing waits for it.
  item.set_message("4 is given up");
  CHECK(render_killed(item, {}, 1'000'000) == "4 is given up\n");
}

TEST_CASE("a kill says what it could not reach") {
  pb::KillReply::Item item;
  item.set_id("4");
  item.set_message("on h2, which is away, its processes end when its runner is back");
  pb::ExperimentInfo experiment;
  experiment.set_state("KILLED");
  CHECK(render_killed(item, experiment, 1'000'000) ==
        "4 is killed; on h2, which is away, its processes end when its runner is back\n");
  experiment.set_state("STOPPING");
  CHECK(render_killed(item, experiment, 1'000'000) ==
        "4 is being killed; on h2, which is away, its processes end when its runner is back; "
        "dtrain wait 4 returns when it has ended\n");
}

TEST_CASE("hosts of one name are told apart, and others need not be") {
  pb::HostsReply reply;
  for (const char* const id : {"0123456789abcdef", "fedcba9876543210"}) {
    pb::HostInfo* host = reply.add_hosts();
    host->set_name("node");
    host->set_id(id);
    host->set_drained(true);
  }
  pb::HostInfo* other = reply.add_hosts();
  other->set_name("berta");
  other->set_id("00000000aaaaaaaa");
  const std::string text = render_hosts(reply, {});
  CHECK_MESSAGE(text.find("node (01234567) away") != std::string::npos, text);
  CHECK_MESSAGE(text.find("node (fedcba98): drained;") != std::string::npos, text);
  CHECK_MESSAGE(text.find("berta (") == std::string::npos, text);
}

TEST_CASE("hosts: free of all, then what is not as it should be") {
  pb::HostsReply reply;
  pb::HostInfo* host = reply.add_hosts();
  host->set_name("node");
  host->set_id("0123456789abcdef");
  host->set_connected(true);
  host->set_cpus(8);
  host->set_cpus_free(2.5);
  host->set_memory_bytes(uint64_t{16} << 30);
  host->set_memory_free_bytes(uint64_t{4} << 30);
  host->set_cgroup("none");
  host->set_gpu_note("no NVIDIA driver");
  host = reply.add_hosts();
  host->set_name("berta");
  host->set_last_contact_ms(120'000);
  host->set_cgroup("v2");
  host->add_uncapped("cpus");
  host->set_gpus_free(0);
  pb::GpuInfo* gpu = host->add_gpus();
  gpu->set_index(3);
  gpu->set_name("H200");
  gpu->set_memory_bytes(uint64_t{140} << 30);
  gpu->set_busy("pid 4242, 31 GB");
  const std::string text = render_hosts(reply, {});
  CHECK(text.find("node       up    2.5/8") != std::string::npos);
  CHECK(text.find("4.0 GiB/16.0 GiB") != std::string::npos);
  CHECK(text.find("node: no cgroup is writable here") != std::string::npos);
  CHECK(text.find("berta: hard limits of cpus are refused: its cgroups can't keep them\n") != std::string::npos);
  CHECK(text.find("node: no GPUs: no NVIDIA driver\n") != std::string::npos);
  CHECK(text.find("node: no address, so no gang is spread over it and others") != std::string::npos);
  CHECK(text.find("berta: no address") == std::string::npos);   // unknown while it is away
  CHECK(text.find("berta      away") != std::string::npos);
  CHECK(text.find("berta: away for 2m 0s; nothing is placed there") != std::string::npos);
  CHECK(text.find("berta: GPU 3 H200, 140.0 GiB, busy: pid 4242, 31 GB\n") != std::string::npos);
  const View narrow{{true, false, 40, 24}, 0, false};
  CHECK(render_hosts(reply, narrow).starts_with(
      "HOST       STATE CPUS FREE GPUS FREE\n"
      "node       up    2.5/8     0\n"));
  CHECK(render_hosts({}, {}).starts_with("No host has joined yet."));
}

TEST_CASE("what a host says of itself stays on its line, and moves no cursor") {
  pb::HostsReply reply;
  pb::HostInfo* host = reply.add_hosts();
  host->set_name("gpu1");
  host->set_connected(true);
  host->set_address("10.0.0.5");
  pb::GpuInfo* gpu = host->add_gpus();
  gpu->set_name("H200\x1b[2J\ngpu2: no GPUs");
  host->add_uncapped("cpus\nmem");
  const std::string text = render_hosts(reply, {});
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("\ngpu2") == std::string::npos);
  CHECK(text.find("\nmem") == std::string::npos);
}

TEST_CASE("whose keys there are, and who asks") {
  pb::UsersReply reply;
  CHECK(render_users(reply, {}) == "Nobody has a key: `dtrain users invite NAME` makes one\n");
  reply.add_users()->set_name("anna");
  pb::UsersReply::User& boss = *reply.add_users();
  boss.set_name("boss");
  boss.set_admin(true);
  CHECK(render_users(reply, {}) ==
        "USER         ROLE\n"
        "anna         user\n"
        "boss         admin\n");
  reply.set_user("anna");
  CHECK(render_users(reply, {}).ends_with("boss         admin\nYou are anna\n"));
}

TEST_CASE("a daemon that ends lists what goes on without it") {
  pb::ShutdownReply reply;
  CHECK(render_shutdown(reply, 7) == "The daemon (pid 7) has ended.\n");
  reply.add_left_running("4.master");
  reply.add_left_running("4.ps.1");
  const std::string text = render_shutdown(reply, 7);
  CHECK(text.find("2 replicas go on without it:\n  4.master\n  4.ps.1\n") != std::string::npos);
  CHECK(text.find("parameter servers do not end") != std::string::npos);
}

TEST_CASE("daemon status shows both versions when they differ") {
  pb::InfoReply info;
  info.set_pid(7);
  info.set_version("9.9.9");
  info.set_protocol(kProtocol);
  info.set_started_unix_ms(1'000);
  const Home home{"/h", "/h/socket"};
  const std::string text = render_daemon(info, home, {}, {{}, 62'000, false});
  CHECK(text.find("Daemon:      running (pid 7)\n") != std::string::npos);
  CHECK(text.find("This dtrain:") != std::string::npos);
  CHECK(text.find("Uptime:      1m 1s\n") != std::string::npos);
  CHECK(text.find("Log:         /h/daemon.log\n") != std::string::npos);
  CHECK(text.find("Quota") == std::string::npos);
  pb::UserInfo& anna = *info.add_users();
  anna.set_user("anna");
  anna.set_gpus(3);
  anna.set_gpus_quota(4);
  anna.set_cpus(1.5);
  anna.set_cpus_quota(32);
  info.add_users()->set_user("bert");
  const std::string quotas = render_daemon(info, home, {}, {{}, 62'000, false});
  CHECK_MESSAGE(quotas.find("Quota:       anna has 3 of 4 GPUs, 1.5 of 32 cpus\n") != std::string::npos, quotas);
  CHECK_MESSAGE(quotas.find("Quota:       bert has no limit\n") != std::string::npos, quotas);
  CHECK(quotas.find("Share") == std::string::npos);
  for (pb::UserInfo& user : *info.mutable_users()) user.set_weight(1);
  info.mutable_users(0)->set_share(0.404);
  info.mutable_users(0)->set_weight(2.5);
  info.mutable_users(1)->set_share(0);
  const std::string shares = render_daemon(info, home, {}, {{}, 62'000, false});
  CHECK_MESSAGE(shares.find("Quota:       anna has 3 of 4 GPUs, 1.5 of 32 cpus\n"
                            "Share:       anna has 40 % of what there is, by a weight of 2.5\n"
                            "Share:       bert has 0 % of what there is\n") != std::string::npos, shares);
}

}  // namespace
}  // namespace dtrain::cli
