#include "runner/launch_dir.h"

#include "runner/record_json.h"
#include "runner/small_file.h"
#include "schema/framing.h"

namespace dtrain::runner {
namespace {

using nlohmann::json;

json to_json(const ReplicaLaunch& replica) {
  json record = {{"id", to_string(replica.id)}, {"attempt", replica.attempt},
                 {"argv", json::array()},       {"cwd", from_bytes(replica.cwd)},
                 {"view_made_ns", replica.view_made_ns},
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
  replica.view_made_ns = record.at("view_made_ns").get<int64_t>();
  for (const auto& [name, value] : record.at("env").items()) replica.env[name] = to_bytes(value);
  for (const json& group : record.at("cgroups")) replica.cgroups.push_back(to_bytes(group));
  return replica;
}

json to_json(const LaunchRecord& launch) {
  json record = {{"experiment", to_string(launch.experiment)},
                 {"attempt", launch.attempt},
                 {"key", launch.key},
                 {"ctl", launch.ctl},
                 {"lease_ms", launch.lease_ms},
                 {"grace_ms", launch.grace_ms},
                 {"spool_limit_bytes", launch.spool_limit_bytes},
                 {"work_root", from_bytes(launch.work_root)},
                 {"tree", from_bytes(launch.tree)},
                 {"gpu_locks", launch.gpu_locks}};
  return record;
}

LaunchRecord launch_from(const json& record) {
  LaunchRecord launch;
  launch.experiment = valid(parse_experiment_id(record.at("experiment").get<std::string>()));
  launch.attempt = record.at("attempt").get<uint32_t>();
  launch.key = record.at("key").get<std::string>();
  launch.ctl = record.at("ctl").get<std::string>();
  launch.lease_ms = record.at("lease_ms").get<int64_t>();
  launch.grace_ms = record.at("grace_ms").get<int64_t>();
  launch.spool_limit_bytes = record.at("spool_limit_bytes").get<uint64_t>();
  launch.work_root = to_bytes(record.at("work_root"));
  launch.tree = to_bytes(record.at("tree"));
  launch.gpu_locks = record.at("gpu_locks").get<std::vector<std::string>>();
  return launch;
}

}  // namespace

std::filesystem::path LaunchRecord::place_of(const ReplicaId& id) const {
  return std::filesystem::path(work_root) / fmt::format("{}@{}", to_string(id), attempt);
}

std::string LaunchDir::name_of(const ExperimentId& experiment, uint32_t attempt) {
  return fmt::format("{}@{}", to_string(experiment), attempt);
}

Status LaunchDir::begin(const std::string& key) const {
  std::string frame;
  append_frame(frame, kRecordBegun, key, {});
  return write_file(record(), frame);
}

std::optional<std::string> LaunchDir::begun_key() const {
  const auto text = read_small_file(record());
  Frame frame;
  if (!text || read_frame(*text, frame) != FrameStatus::Good || frame.kind != kRecordBegun) {
    return std::nullopt;
  }
  return std::string(frame.payload);
}

Status LaunchDir::write_launch(const LaunchRecord& launch) const {
  std::string frames;
  append_frame(frames, kRecordLaunch, record_text(to_json(launch)), {});
  for (const ReplicaLaunch& replica : launch.replicas) {
    const std::string text = record_text(to_json(replica));
    if (text.size() > kFramePayloadMaxBytes) {
      return Error{Code::FailedPrecondition,
                   fmt::format("the command and environment of {} take {} MiB",
                               to_string(replica.id), text.size() >> 20),
                   "a program can be given a few MiB at most"};
    }
    append_frame(frames, kRecordReplica, text, {});
  }
  append_frame(frames, kRecordWhole, record_text(json::object()), {});
  return write_file(record(), frames);
}

Result<std::optional<LaunchRecord>> LaunchDir::read_launch() const {
  TRY(const std::optional<std::string> text, read_file(record()));
  std::string_view rest = text ? std::string_view(*text) : std::string_view();
  std::optional<LaunchRecord> launch;
  Frame frame;
  for (; read_frame(rest, frame) == FrameStatus::Good; rest.remove_prefix(frame.size_bytes)) {
    if (frame.kind == kRecordWhole) return launch;
    if (frame.kind == kRecordLaunch) {
      TRY(launch, parse_record(frame.payload, record().string(), launch_from));
    } else if (frame.kind == kRecordReplica && launch) {
      TRY(ReplicaLaunch replica, parse_record(frame.payload, record().string(), replica_launch_from));
      launch->replicas.push_back(std::move(replica));
    } else {
      break;
    }
  }
  return std::optional<LaunchRecord>();
}

Status LaunchDir::sync_names() const {
  TRY(sync_directory(path_));
  return sync_directory(path_.parent_path());
}

std::filesystem::path LaunchDir::spool(const ReplicaId& id, uint64_t sequence) const {
  return path_ / fmt::format("spool.{}.{}", to_string(id), sequence);
}

}  // namespace dtrain::runner
