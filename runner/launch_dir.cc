#include "runner/launch_dir.h"

#include <nlohmann/json.hpp>

#include "runner/small_file.h"
#include "schema/clock.h"

namespace dtrain::runner {
namespace {

using nlohmann::json;

// Arguments and environments are bytes, JSON strings are UTF-8: what isn't becomes {"hex": "..."}.
json from_bytes(const std::string& bytes) {
  json text = bytes;
  try {
    (void)text.dump();
    return text;
  } catch (const json::exception&) {
    std::string hex;
    for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return {{"hex", hex}};
  }
}

// The readers below throw json::exception on anything unexpected; read_record() catches.
std::string to_bytes(const json& text) {
  if (text.is_string()) return text.get<std::string>();
  const std::string& hex = text.at("hex").get_ref<const std::string&>();
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

json to_json(const ProcessIdentity& identity) {
  return {{"pid", identity.pid}, {"start", identity.start_ticks}, {"boot", identity.boot_id}};
}

ProcessIdentity identity_from(const json& record) {
  return {record.at("pid").get<pid_t>(), record.at("start").get<uint64_t>(),
          record.at("boot").get<std::string>()};
}

// An id that doesn't parse makes the whole record unreadable, like a missing key.
template <typename T>
T valid(Result<T> parsed) {
  if (!parsed.ok()) throw std::invalid_argument(parsed.error().message);
  return std::move(parsed).value();
}

json to_json(const ReplicaLaunch& replica) {
  json record = {{"id", to_string(replica.id)}, {"attempt", replica.attempt},
                 {"argv", json::array()},       {"cwd", from_bytes(replica.cwd)},
                 {"env", json::object()},       {"cgroups", json::array()}};
  for (const std::string& argument : replica.argv) record["argv"].push_back(from_bytes(argument));
  for (const auto& [name, value] : replica.env) record["env"][name] = from_bytes(value);
  for (const std::string& group : replica.cgroups) record["cgroups"].push_back(from_bytes(group));
  return record;
}

ReplicaLaunch replica_launch_from(const json& record) {
  ReplicaLaunch replica;
  replica.id = valid(parse_replica_id(record.at("id").get<std::string>()));
  replica.attempt = record.at("attempt").get<uint32_t>();
  for (const json& argument : record.at("argv")) replica.argv.push_back(to_bytes(argument));
  replica.cwd = to_bytes(record.at("cwd"));
  for (const auto& [name, value] : record.at("env").items()) replica.env[name] = to_bytes(value);
  for (const json& group : record.at("cgroups")) replica.cgroups.push_back(to_bytes(group));
  return replica;
}

json to_json(const LaunchFile& launch) {
  json record = {{"format", kLaunchFormat},
                 {"experiment", to_string(launch.experiment)},
                 {"attempt", launch.attempt},
                 {"key", launch.key},
                 {"lease_ms", launch.lease_ms},
                 {"grace_ms", launch.grace_ms},
                 {"spool_limit_bytes", launch.spool_limit_bytes},
                 {"work_root", from_bytes(launch.work_root)},
                 {"replicas", json::array()}};
  for (const ReplicaLaunch& replica : launch.replicas) {
    record["replicas"].push_back(to_json(replica));
  }
  return record;
}

LaunchFile launch_from(const json& record) {
  LaunchFile launch;
  launch.experiment = valid(parse_experiment_id(record.at("experiment").get<std::string>()));
  launch.attempt = record.at("attempt").get<uint32_t>();
  launch.key = record.at("key").get<std::string>();
  launch.lease_ms = record.at("lease_ms").get<int64_t>();
  launch.grace_ms = record.at("grace_ms").get<int64_t>();
  launch.spool_limit_bytes = record.at("spool_limit_bytes").get<uint64_t>();
  launch.work_root = to_bytes(record.at("work_root"));
  for (const json& replica : record.at("replicas")) {
    launch.replicas.push_back(replica_launch_from(replica));
  }
  return launch;
}

json to_json(const ReplicaFile& replica) {
  return {{"format", kLaunchFormat},
          {"process", to_json(replica.process)},
          {"started_unix_ms", replica.started_unix_ms},
          {"pipe_inode", replica.pipe_inode},
          {"error", from_bytes(replica.error)}};
}

ReplicaFile replica_from(const json& record) {
  ReplicaFile replica;
  replica.process = identity_from(record.at("process"));
  replica.started_unix_ms = record.at("started_unix_ms").get<int64_t>();
  replica.pipe_inode = record.at("pipe_inode").get<uint64_t>();
  replica.error = to_bytes(record.at("error"));
  return replica;
}

json to_json(const ExitFile& exit) {
  return {{"format", kLaunchFormat},         {"code", exit.code},
          {"signal", exit.signal},           {"memory_kill", exit.memory_kill},
          {"cause", from_bytes(exit.cause)}, {"ended_unix_ms", exit.ended_unix_ms},
          {"cpu_seconds", exit.cpu_seconds}, {"memory_peak_bytes", exit.memory_peak_bytes},
          {"read_bytes", exit.read_bytes},   {"written_bytes", exit.written_bytes},
          {"log_bytes", exit.log_bytes}};
}

ExitFile exit_from(const json& record) {
  ExitFile exit;
  exit.code = record.at("code").get<int>();
  exit.signal = record.at("signal").get<int>();
  exit.memory_kill = record.at("memory_kill").get<bool>();
  exit.cause = to_bytes(record.at("cause"));
  exit.ended_unix_ms = record.at("ended_unix_ms").get<int64_t>();
  exit.cpu_seconds = record.at("cpu_seconds").get<double>();
  exit.memory_peak_bytes = record.at("memory_peak_bytes").get<uint64_t>();
  exit.read_bytes = record.at("read_bytes").get<uint64_t>();
  exit.written_bytes = record.at("written_bytes").get<uint64_t>();
  exit.log_bytes = record.at("log_bytes").get<uint64_t>();
  return exit;
}

// A name of a variable that isn't UTF-8 is replaced rather than refused.
Status write_record(const std::filesystem::path& path, const json& record, Durability durability) {
  return replace_file(path, record.dump(1, ' ', false, json::error_handler_t::replace), durability);
}

template <typename T>
Result<std::optional<T>> read_record(const std::filesystem::path& path, T (*from)(const json&)) {
  const std::optional<std::string> text = read_small_file(path);
  if (!text) return std::optional<T>();
  try {
    const json record = json::parse(*text);
    const int format = record.at("format").get<int>();
    if (format > kLaunchFormat || format < kLaunchFormat - 1 || format < 1) {
      return Error{Code::DataLoss,
                   fmt::format("{} has format {}, this dtrain reads {}", path.string(), format,
                               kLaunchFormat),
                   "use the dtrain version that wrote it until its experiments have ended"};
    }
    return std::optional<T>(from(record));
  } catch (const std::exception& e) {
    return Error{Code::DataLoss, fmt::format("{} is damaged: {}", path.string(), e.what()), ""};
  }
}

}  // namespace

ProcessIdentity identify(pid_t pid) {
  static const std::string this_boot = boot_id();
  ProcessIdentity identity{pid, 0, this_boot};
  const auto stat = read_small_file("/proc/" + std::to_string(pid) + "/stat");
  // The second field is the program's name in brackets and may hold anything; fields count from the
  // last bracket. The start time is field 22, so the 20th after the name.
  const size_t name_end = stat ? stat->rfind(')') : std::string::npos;
  if (name_end == std::string::npos) return identity;
  size_t at = name_end + 1;
  for (int field = 3; field <= 22; ++field) {
    at = stat->find_first_not_of(' ', at);
    if (at == std::string::npos) return identity;
    const size_t end = stat->find(' ', at);
    if (field == 3 && ((*stat)[at] == 'Z' || (*stat)[at] == 'X')) return identity;
    if (field == 22) identity.start_ticks = std::strtoull(stat->c_str() + at, nullptr, 10);
    at = end;
  }
  return identity;
}

bool is_alive(const ProcessIdentity& identity) {
  if (identity.pid <= 0 || identity.start_ticks == 0) return false;
  const ProcessIdentity now = identify(identity.pid);
  return now.start_ticks == identity.start_ticks && now.boot_id == identity.boot_id;
}

std::string LaunchDir::name_of(const ExperimentId& experiment, uint32_t attempt) {
  return fmt::format("{}@{}", to_string(experiment), attempt);
}

Status LaunchDir::write_launch(const LaunchFile& launch) const {
  return write_record(path_ / "launch.json", to_json(launch), Durability::Fsync);
}

Status LaunchDir::write_keeper(const KeeperFile& keeper) const {
  const json record = {{"format", kLaunchFormat}, {"keeper", to_json(keeper.keeper)}};
  return write_record(path_ / "keeper.json", record, Durability::Rename);
}

Status LaunchDir::write_replica(const ReplicaId& id, const ReplicaFile& replica) const {
  return write_record(path_ / fmt::format("replica.{}.json", to_string(id)), to_json(replica),
                      Durability::Rename);
}

Status LaunchDir::write_exit(const ReplicaId& id, const ExitFile& exit) const {
  return write_record(path_ / fmt::format("exit.{}.json", to_string(id)), to_json(exit),
                      Durability::Content);
}

Result<std::optional<LaunchFile>> LaunchDir::read_launch() const {
  return read_record<LaunchFile>(path_ / "launch.json", launch_from);
}

Result<std::optional<KeeperFile>> LaunchDir::read_keeper() const {
  return read_record<KeeperFile>(path_ / "keeper.json", [](const json& record) {
    return KeeperFile{identity_from(record.at("keeper"))};
  });
}

Result<std::optional<ReplicaFile>> LaunchDir::read_replica(const ReplicaId& id) const {
  return read_record<ReplicaFile>(path_ / fmt::format("replica.{}.json", to_string(id)),
                                  replica_from);
}

Result<std::optional<ExitFile>> LaunchDir::read_exit(const ReplicaId& id) const {
  return read_record<ExitFile>(path_ / fmt::format("exit.{}.json", to_string(id)), exit_from);
}

std::filesystem::path LaunchDir::spool(const ReplicaId& id, uint64_t sequence) const {
  return path_ / fmt::format("spool.{}.{}", to_string(id), sequence);
}

}  // namespace dtrain::runner
