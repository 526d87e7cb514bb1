#include "daemon/incoming_messages.h"

#include <algorithm>
#include <set>

#include "daemon/record.h"
#include "schema/clock.h"
#include "schema/config.h"
#include "schema/quote.h"
#include "schema/text_formats.h"

namespace dtrain::daemon {

namespace {

// However many lines a host tells of, and however long they are, a row has room for a few.
Exit exit_said_by_host(const pb::ExitStatus& status) {
  constexpr size_t kLinesMax = 32, kLineMaxBytes = 1000;
  Exit exit = exit_from_message(status);
  if (exit.printed.size() > kLinesMax) exit.printed.resize(kLinesMax);
  for (auto& [rule, line] : exit.printed) {
    if (line.size() > kLineMaxBytes) line = as_utf8(std::string_view(line).substr(0, kLineMaxBytes));
  }
  return exit;
}

// Far beyond any host, and far enough from where sums overflow.
constexpr double kHostCpusMax = 1e6;
constexpr uint64_t kHostMemoryBytesMax = uint64_t{1} << 56;
constexpr uint32_t kGpuIndexMax = 4095;
constexpr uint32_t kPortMax = 65'535;
constexpr uint64_t kLastsMsMax = uint64_t{1} << 50;

Status check_inventory(const pb::Inventory& inventory) {
  const auto refuse = [](std::string_view why) {
    return Error{Code::InvalidArgument, fmt::format("an inventory that makes no sense: {}", why),
                 ""};
  };
  if (!(inventory.cpus() >= 0 && inventory.cpus() <= kHostCpusMax)) {  // nor is it NaN
    return refuse(fmt::format("{} cpus", inventory.cpus()));
  }
  if (inventory.memory_bytes() > kHostMemoryBytesMax) {
    return refuse(fmt::format("{} bytes of memory", inventory.memory_bytes()));
  }
  if (!inventory.address().empty() && !is_host_address(inventory.address())) {
    return refuse(fmt::format("the address {}", in_quotes(inventory.address())));
  }
  if (inventory.labels_size() > static_cast<int>(kHostLabelsMax)) return refuse(fmt::format("{} labels", inventory.labels_size()));
  for (const std::string& label : inventory.labels()) {
    if (!kHostLabel.accepts(label)) return refuse(fmt::format("the label {}", in_quotes(label)));
  }
  std::set<uint32_t> gpus;
  for (const auto& gpu : inventory.gpus()) {
    if (gpu.index() > kGpuIndexMax || !gpus.insert(gpu.index()).second) {
      return refuse(fmt::format("GPU {}, or twice", gpu.index()));
    }
  }
  const uint32_t first = inventory.port_first();
  if (first != 0 && (first > inventory.port_last() || inventory.port_last() > kPortMax)) {
    return refuse(fmt::format("ports {} to {}", first, inventory.port_last()));
  }
  return ok();
}

bool is_submission_id(const std::string& text) {
  return text.size() == 32 && std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

Result<Host> host_from_message(const pb::Hello& hello, const std::string& boot_id) {
  const pb::Inventory& inventory = hello.inventory();
  Host host;
  host.id.hex = hello.host_id();
  if (host.id.hex.empty()) return Error{Code::InvalidArgument, "a runner without a host id", ""};
  TRY(check_inventory(inventory));
  host.name = inventory.name();
  host.address = inventory.address();
  host.cpus = inventory.cpus();
  host.labels.assign(inventory.labels().begin(), inventory.labels().end());
  host.memory_bytes = inventory.memory_bytes();
  for (const auto& gpu : inventory.gpus()) {
    host.gpus.push_back({static_cast<int>(gpu.index()), gpu.name(), gpu.busy(), gpu.has_numa_node() ? static_cast<int>(gpu.numa_node()) : -1});
  }
  if (inventory.port_first() != 0) {
    host.port_first = static_cast<int>(inventory.port_first());
    host.port_last = static_cast<int>(inventory.port_last());
  }
  for (const std::string& what : inventory.uncapped()) {
    if (what == "cpus") host.caps_cpus = false;
    if (what == "mem") host.caps_memory = false;
  }
  host.lasts_ms = static_cast<int64_t>(std::min(hello.lasts_ms(), kLastsMsMax));
  if (host.lasts_ms > 0) host.ends_ms = boottime_ms() + static_cast<int64_t>(std::min(hello.left_ms(), kLastsMsMax));
  host.same_machine = hello.boot_id() == boot_id;
  host.connected = true;
  return host;
}

Result<std::optional<Event>> event_from_message(const HostId& host, const pb::FromRunner& message) {
  if (message.has_leaving()) return std::optional<Event>(HostLeaves{host, "the runner of its host was told to end"});
  if (message.has_prepared()) {
    const auto& prepared = message.prepared();
    TRY(const auto id, parse_experiment_id(prepared.experiment()));
    return std::optional<Event>(
        LaunchPrepared{host, {id, prepared.attempt(), prepared.of_builds()}, prepared.cached()});
  }
  if (message.has_prepare_failed()) {
    const auto& failed = message.prepare_failed();
    TRY(const auto id, parse_experiment_id(failed.experiment()));
    const int port = failed.port_taken() > kPortMax ? 0 : static_cast<int>(failed.port_taken());
    return std::optional<Event>(
        LaunchFailed{host, {id, failed.attempt(), failed.of_builds()}, failed.reason(), port, failed.ours(),
                     failed.unfit()});
  }
  if (message.has_started()) {
    const auto& started = message.started();
    TRY(const auto id, parse_replica_id(started.replica()));
    return std::optional<Event>(
        ReplicaStarted{id, started.attempt(), started.pid(), started.time_unix_ms(), host});
  }
  if (message.has_exited()) {
    const auto& exited = message.exited();
    TRY(const auto id, parse_replica_id(exited.replica()));
    return std::optional<Event>(
        ReplicaExited{id, exited.attempt(), exit_said_by_host(exited.status()), host});
  }
  if (message.has_released()) {
    const auto& released = message.released();
    TRY(const auto id, parse_replica_id(released.replica()));
    return std::optional<Event>(
        ReplicaReleased{id, released.attempt(), released.left_behind(), host});
  }
  return std::optional<Event>();
}

std::string hosts_wanted(const Spec& spec) { return fmt::format("{}", fmt::join(spec.hosts, ",")); }

Result<Submission> submission_from_message(const pb::SubmitHeader& header) {
  if (!is_submission_id(header.submission_id())) {
    return Error{Code::InvalidArgument, "a submission id has 32 hex digits", ""};
  }
  Submission submission;
  submission.submission_id = header.submission_id();
  submission.spec_yaml = header.spec_yaml();
  ParseOptions options;
  options.file_name = "the submitted YAML";
  TRY(submission.spec, parse_spec(header.spec_yaml(), options));
  submission.shapes = shapes_of(submission.spec);
  submission.snapshot = header.snapshot();
  submission.user = header.user();
  submission.project_dir = header.project_dir();
  submission.host = hosts_wanted(submission.spec);
  return submission;
}

}  // namespace dtrain::daemon
