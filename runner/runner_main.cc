#include "runner/output_calls.h"
#include "runner/runner_main.h"

#include <fmt/format.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <optional>
#include <cstdlib>
#include <cstdio>

#include "runner/agent.h"
#include "runner/exec_call.h"
#include "runner/inventory.h"
#include "runner/lent_host.h"
#include "runner/link.h"
#include "runner/local_daemon.h"
#include "runner/nvml.h"
#include "runner/own_address.h"
#include "schema/clock.h"
#include "schema/small_file.h"
#include "schema/lock_file.h"
#include "schema/own_log.h"
#include "schema/removal_watch.h"
#include "schema/process_limits.h"
#include "schema/random_id.h"

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace asio = boost::asio;
namespace {

// Random, because containers and network namespaces share host names and boot ids.
Result<std::string> host_id(const fs::path& home) {
  const fs::path path = home / "host-id";
  // What runs here belongs to the host of that name: another name would have it stopped.
  TRY(const auto text, read_file(path));
  if (text && text->size() >= kRandomIdDigits) return text->substr(0, kRandomIdDigits);
  TRY(const std::string id, random_id());
  TRY(replace_file(path, id + "\n"));
  return id;
}

Status make_home(const fs::path& home) {
  std::error_code error;
  fs::create_directories(home, error);
  if (error) return errno_error("make " + home.string(), error.value());
  fs::permissions(home, fs::perms::owner_all, error);
  return ok();
}

// Empty where the system does not say; then only PATH counts.
fs::path own_folder() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path();
}

Result<LaunchSite> open_site(const RunnerOptions& options, BlobSource& blobs) {
  LaunchSite site;
  site.home = fs::absolute(options.home);
  site.host_name = !options.name.empty() ? options.name : options.key ? options.key->name : host_name();
  site.inherited = inherited_environment(own_process_environment());
  site.cgroups = claim_cgroups();
  TRY(site.trees, Trees::open(site.home / "trees"));
  site.trees_bytes_max = options.cache_bytes.value_or(kTreesBytesMax);
  site.blobs = &blobs;
  site.programs = own_folder();
  if (const char* point = std::getenv("DTRAIN_DATA_MOUNT")) site.data_mount = point;
  return site;
}

// A host that was lent is not to be kept longer by a runner that no daemon wants any more.
constexpr std::chrono::minutes kAloneMost{10};

// From here to the end: everything on one loop, one thread.
Status serve(const RunnerOptions& options, const std::string& id) {
  asio::io_context loop(1);
  Link link(loop, {options.daemon_socket, options.key});
  OutputCalls output_calls(link);
  TRY(LaunchSite site, open_site(options, link));
  site.store = &output_calls;
  site.host_id = id;
  const Nvml nvml;
  site.gpus = nvml.devices();
  site.driver_libraries = nvml.libraries();
  InventoryOptions shown{site.host_name,       options.address,    options.cpus,
                               options.memory_bytes, options.port_first, options.port_last,
                               site.cgroups.kind,    uncapped(site.cgroups), options.labels};
  AgentOptions agent_options;
  agent_options.host_id = id;
  if (options.for_ms) {
    agent_options.lasts_ms = *options.for_ms;
    agent_options.ends_ms = boottime_ms() + *options.for_ms;
  }
  agent_options.keeper_executable =
      options.keeper_executable.empty() ? fs::path("/proc/self/exe") : options.keeper_executable;
  const pb::Inventory first = take_inventory(shown, nvml);
  agent_options.usage = {first.name(), first.cpus(), first.memory_bytes(), &nvml};

  agent_options.dial_exec = dial_exec_over(loop, link);
  std::optional<Agent> held;
  const auto inventory = [&shown, &nvml, &key = options.key] {
    if (shown.address.empty() && key) shown.address = own_address_towards(*parse_endpoint(key->daemon));
    return take_inventory(shown, nvml);
  };
  Agent& agent = held.emplace(loop, std::move(agent_options), std::move(site), link, inventory);
  TRY(agent.adopt());
  std::optional<LocalDaemon> daemon;
  if (!options.daemon_home.empty()) {
    TRY(const Home home, open_home(options.daemon_home));
    daemon.emplace(loop, home);
  }
  const auto end = [&] {
    link.close();
    loop.stop();
  };
  std::optional<LentHost> lent;
  if (options.for_ms) {
    lent.emplace(loop, kAloneMost,
                 LentHost::Parts{[&] { return agent.launches_held(); },
                                 [&](std::function<void()> gone) { agent.leave(std::move(gone)); }, end});
  }
  link.open({[&] { agent.on_connected(); },
             [&](const pb::ToRunner& message) {
               if (lent && message.has_welcome()) lent->found();
               if (daemon && message.has_welcome()) daemon->found();
               agent.on_message(message);
             },
             [&] {
               if (daemon) daemon->lost();
               agent.on_disconnected();
               if (lent) lent->lost();
             }});

  asio::signal_set signals(loop, SIGTERM, SIGINT);
  const auto end_now = [&](boost::system::error_code error, int signal) {
    if (error) return;
    const size_t launches = agent.launches_held();
    fmt::print(stderr, "ends by signal {}; {} launch{} on\n", signal, launches, launches == 1 ? " goes" : "es go");
    end();
  };
  signals.async_wait([&](boost::system::error_code error, int signal) {
    if (error || !lent) return end_now(error, signal);
    lent->leave();
    signals.async_wait(end_now);   // told once more, it does not wait
  });
  const RemovalWatch home_watch(loop, options.home / "lock", {.on_all = [&] {
    fmt::print(stderr, "ends: {} was removed, and with it what ran here\n", options.home.native());
    end();
  }});
  fmt::print(stderr, "runner {} ({}), pid {}, cgroups {}, {}\n", first.name(), id, getpid(),
             first.cgroup(),
             first.gpus_size() > 0 ? fmt::format("{} GPUs", first.gpus_size()) : first.gpu_note());
  loop.run();
  held.reset();   // finishes its file work
  std::fflush(nullptr);
  // gRPC's threads may still be about to post to the loop: the process ends under them, and not the
  // loop before them.
  std::_Exit(0);
}

// Beyond this it does with what it gets, and waits where it gets none.
constexpr size_t kDescriptorsMin = 32;

Status run(const RunnerOptions& options) {
  TRY(check_descriptors_left(kDescriptorsMin));
  TRY(make_home(options.home));
  // Held until the process ends. Two runners of one home would both adopt its launches.
  auto lock = hold_lock(options.home / "lock");
  if (!lock.ok() && lock.error().code != Code::FailedPrecondition) return std::move(lock).error();
  if (!lock.ok()) {
    return Error{lock.error().code, "a runner runs there already: " + lock.error().message,
                 "--home DIR gives another one a directory of its own"};
  }
  TRY(const std::string id, host_id(options.home));
  return serve(options, id);
}

}  // namespace

Status run_runner(const RunnerOptions& options) {
  std::setvbuf(stderr, nullptr, _IOLBF, 0);
  if (!options.daemon_home.empty()) bound_own_log(Home{options.daemon_home, {}}.runner_log());
  setenv("GRPC_VERBOSITY", "NONE", 0);   // Link says why it has no stream
  std::signal(SIGPIPE, SIG_IGN);
  raise_own_limits();
  std::signal(SIGHUP, SIG_IGN);  // the terminal it was started from may go
  return run(options);
}

}  // namespace dtrain::runner
