#include "cli/hosts.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/add_host.h"
#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/escapes.h"
#include "cli/host_names.h"
#include "cli/hosts_test.h"
#include "cli/json_output.h"
#include "cli/key_file.h"
#include "cli/remote.h"
#include "cli/table.h"
#include "cli/words.h"

namespace dtrain::cli {

namespace {

std::string gpus_of(const pb::HostInfo& host) {
  if (host.gpus().empty()) return "0";
  return fmt::format("{}/{}", host.gpus_free(), host.gpus_size());
}

Cell state_of(const pb::HostInfo& host) {
  if (host.revoked()) return {"revoked", Ink::Red};
  if (!host.connected()) return {"away", Ink::Red};
  return host.drained() ? Cell{"drained", Ink::Yellow} : Cell{"up", Ink::Green};
}

void append_notes(std::string& out, const pb::HostInfo& host, const std::string& name, bool is_alone, size_t width) {
  const auto note = [&](const std::string& text) {
    out += folded(on_one_line(name + ": " + text), width) + "\n";
  };
  if (host.revoked()) {
    note("its key was revoked; it is forgotten once what ran there counts as lost");
  } else if (!host.connected()) {
    note(host.last_contact_ms() == 0
             ? std::string("away; nothing is placed there until its runner is back")
             : fmt::format("away for {}; nothing is placed there until its runner is back",
                           human_duration(host.last_contact_ms())));
  }
  if (host.drained()) note("drained; what runs there goes on, and nothing more is placed there until `" + called() + " hosts undrain`");
  if (host.connected() && host.address().empty() && !is_alone) {
    note("no address, so no gang is spread over it and others: set `address` below `host:` in its "
         "config.yml, or join it with --address");
  }
  if (!host.labels().empty()) note(fmt::format("labels {}", fmt::join(host.labels(), ", ")));
  if (host.cgroup() == "none") {
    note("no cgroup is writable here: hard limits are refused, usage is summed over processes");
  } else if (!host.uncapped().empty()) {
    note(fmt::format("hard limits of {} are refused: its cgroups can't keep them",
                     fmt::join(host.uncapped(), " and ")));
  }
  if (host.gpus().empty() && !host.gpu_note().empty()) note("no GPUs: " + host.gpu_note());
  for (const auto& gpu : host.gpus()) {
    const std::string node = gpu.has_numa_node() ? fmt::format(", NUMA node {}", gpu.numa_node()) : "";
    note(fmt::format("GPU {} {}, {}{}{}", gpu.index(), gpu.name(), human_memory(gpu.memory_bytes()), node,
                     gpu.busy().empty() ? "" : ", busy: " + gpu.busy()));
  }
}

// "gpu-3 (2 hosts for 17): job 4711 is in the queue of Slurm (Resources)".
std::string allocation_text(const pb::AllocationInfo& allocation) {
  std::string state = allocation.state();
  if (state == "PENDING") state = "is in the queue of Slurm";
  const bool is_here = allocation.joined() == allocation.hosts();
  const bool says_why = allocation.state() == "PENDING" && !is_here && !allocation.reason().empty() && allocation.reason() != "None";
  if (allocation.state() == "RUNNING" || (is_here && allocation.state() == "PENDING")) {
    state = is_here ? "is here" : fmt::format("runs, {} of {} joined", allocation.joined(), allocation.hosts());
  }
  return fmt::format("{} ({} host{} for {}): {}{}{}", allocation.name(), allocation.hosts(),
                     allocation.hosts() == 1 ? "" : "s", allocation.for_whom(),
                     allocation.job().empty() ? "" : fmt::format("job {} ", allocation.job()),
                     allocation.job().empty() ? "being asked for" : state,
                     says_why ? fmt::format(" ({})", allocation.reason()) : "");
}

void append_pool(std::string& out, const pb::PoolInfo& pool, size_t width) {
  out += folded(on_one_line(fmt::format("pool {}: {} of {} hosts{}", pool.name(), pool.hosts(), pool.hosts_max(),
                                        pool.trouble().empty() ? "" : "; " + pool.trouble())), width) +
         "\n";
  for (const auto& allocation : pool.allocations()) out += folded("  " + on_one_line(allocation_text(allocation)), width) + "\n";
}

}  // namespace

std::string render_hosts(const pb::HostsReply& reply, const View& view) {
  std::string pools;
  for (const auto& pool : reply.pools()) append_pool(pools, pool, view.screen.width);
  if (reply.hosts().empty()) {
    return pools + folded("No host has joined yet. The daemon starts a runner on this machine; runner.log in "
                          "DTRAIN_HOME says if it could not.\n", view.screen.width);
  }
  Table table;
  table.columns = {
      {"HOST", 10, 0, true},     {"STATE", 5, 0, false},     {"CPUS FREE", 9, 0, false},
      {"MEM FREE", 8, 4, false}, {"GPUS FREE", 9, 5, false}, {"REPLICAS", 8, 3, false},
      {"ADDRESS", 9, 2, false},  {"CGROUP", 6, 1, false},    {"ID", 8, 1, false}};
  HostNames names;
  for (const auto& host : reply.hosts()) names.add(host.name(), host.id());
  for (const auto& host : reply.hosts()) {
    table.rows.push_back(
        {{names.shown(host.name(), host.id())},
         state_of(host),
         {fmt::format("{:.4g}/{:.4g}", host.cpus_free(), host.cpus())},
         {fmt::format("{}/{}", human_memory(host.memory_free_bytes()),
                      human_memory(host.memory_bytes()))},
         {gpus_of(host)},
         {fmt::format("{}", host.replicas())},
         {host.address()},
         {host.cgroup()},
         {host.id().substr(0, kHostIdDigits)}});
  }
  std::string out = render(table, view.screen);
  for (const auto& host : reply.hosts()) append_notes(out, host, names.shown(host.name(), host.id()), reply.hosts_size() == 1, view.screen.width);
  for (const std::string& name : reply.invited()) out += name + ": has a key, and is not here\n";
  return out + pools;
}

namespace {

struct Invitation {
  std::string name, address, file;
};

Result<int> invite(const Invitation& words, const CommandContext& context) {
  TRY(const std::string file, key_file(words.name, words.file));
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  pb::InviteRequest request;
  request.set_name(words.name);
  request.set_address(words.address);
  TRY(const pb::InviteReply reply, connection.invite(request));
  TRY(write_key(file, reply.key(), [&] {
    pb::RevokeRequest back;
    back.set_name(words.name);
    (void)connection.revoke(back).ok();
  }));
  fmt::print("{} lets one host join as {}, by {}. Keep it as you keep an SSH key. On that host, with this version of dtrain:\n"
             "  dtrain runner run --join {}\n",
             file, words.name, reply.daemon(), std::filesystem::path(file).filename().string());
  return 0;
}

Result<int> drain(const std::string& host, bool undrain, const CommandContext& context) {
  pb::DrainRequest request;
  request.set_host(host);
  request.set_undrain(undrain);
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  TRY(const pb::DrainReply reply, connection.drain(request));
  if (context.json) {
    fmt::print("{}", to_json(reply, undrain));
    return 0;
  }
  if (undrain) {
    fmt::print("{} takes replicas{}\n", reply.name(), reply.changed() ? " again" : ", as before");
    return 0;
  }
  fmt::print("{} takes nothing more{}; {} hosts undrain {} has it do so again\n", reply.name(),
             reply.changed() ? "" : ", as before", called(), host);   // as it was called here: two may have one name
  if (reply.experiments().empty()) {
    fmt::print("Nothing runs there\n");
  } else {
    fmt::print("There goes on what it has: {0}. {1} wait {2} waits for that, {1} kill ends it\n",
               fmt::join(reply.experiments(), ", "), called(), fmt::join(reply.experiments(), " "));
  }
  return 0;
}

Result<int> revoke(const std::string& name, const CommandContext& context) {
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  pb::RevokeRequest request;
  request.set_name(name);
  TRY(const pb::RevokeReply reply, connection.revoke(request));
  fmt::print("No host joins as {} any more{}\n", name,
             reply.was_connected() ? "; the one that had is cut off, and what runs there is lost as with a host that fails"
                                   : "");
  return 0;
}

}  // namespace

Run declare_hosts(Options& options, CommandContext& context) {
  options.subcommand("add", "make a machine a host that one reaches by SSH",
                     [&context](Options& of) { return declare_add_host(of, context); });
  options.subcommand("invite", "make a key by which a host joins over the network", [&context](Options& of) -> Run {
    auto words = std::make_shared<Invitation>();
    of.positional("NAME", words->name, "what the host is called", true);
    of.text("--address", words->address, "how it reaches this machine; left out: as config.yml says", "ADDRESS");
    of.text("-o,--output", words->file, "where to write the key; left out: NAME.key", "FILE");
    return [&context, words] { return invite(*words, context); };
  });
  const auto declare_drain = [&context](bool undrain) {
    return [&context, undrain](Options& of) -> Run {
      auto host = std::make_shared<std::string>();
      of.positional("HOST", *host, "its name or ID", true);
      of.json(context);
      return [&context, undrain, host] { return drain(*host, undrain, context); };
    };
  };
  options.subcommand("drain", "have a host take nothing more; what runs there goes on", declare_drain(false));
  options.subcommand("undrain", "have it take replicas again", declare_drain(true));
  options.subcommand("test", "see that all hosts work, and reach each other", [&context](Options& of) { return declare_hosts_test(of, context); });
  options.subcommand("revoke", "end a host's key, and cut the host off", [&context](Options& of) -> Run {
    auto name = std::make_shared<std::string>();
    of.positional("NAME", *name, "what it was invited as", true);
    return [&context, name] { return revoke(*name, context); };
  });
  options.json(context);
  return [&context]() -> Result<int> {
    TRY(Connection connection, connect(Autostart::IfNeeded, context));
    TRY(const pb::HostsReply reply, connection.hosts());
    const View view = view_of_stdout();
    fmt::print("{}", context.json ? to_json(reply) : render_hosts(reply, view));
    return 0;
  };
}

}  // namespace dtrain::cli
