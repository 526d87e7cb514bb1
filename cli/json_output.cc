#include "cli/json_output.h"

#include <map>
#include <nlohmann/json.hpp>

#include "cli/measure.h"
#include "schema/states.h"
#include "schema/version.h"

namespace dtrain::cli {

using Json = nlohmann::ordered_json;

namespace {

std::string line_of(const Json& json) {
  // Names from YAML may hold any bytes; JSON is UTF-8.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Json time_of(uint64_t unix_ms) {
  return unix_ms == 0 ? Json() : Json(unix_ms);
}

// By name; what is no number for JSON (nan, inf) is null there.
Json metrics_of(const pb::ExperimentInfo& info) {
  Json metrics = Json::object();
  for (const pb::Metric& metric : info.metrics()) {
    if (is_silent(metric)) continue;
    metrics[metric.name()] = {
        {"last", metric.last()},
        {"min", metric.minimum()},
        {"max", metric.maximum()},
        {"best", metric.has_best() ? Json(metric.best()) : Json()},
        {"count", metric.count()},
        {"step", metric.has_step() ? Json(metric.step()) : Json()},
        {"replica", metric.replica().empty() ? Json() : Json(metric.replica())}};
  }
  return metrics;
}

Json quota_json(const pb::UserInfo& user) {
  Json json = {{"user", user.user()}, {"cpus", user.cpus()}, {"memory_bytes", user.memory_bytes()}, {"gpus", user.gpus()}};
  json["cpus_quota"] = user.has_cpus_quota() ? Json(user.cpus_quota()) : Json();
  json["memory_quota_bytes"] = user.has_memory_quota() ? Json(user.memory_quota()) : Json();
  json["gpus_quota"] = user.has_gpus_quota() ? Json(user.gpus_quota()) : Json();
  json["share"] = user.has_share() ? Json(user.share()) : Json();
  json["weight"] = user.has_weight() ? Json(user.weight()) : Json();
  return json;
}

Json json_of(const pb::ExperimentInfo& info) {
  Json parameters = Json::object();
  for (const auto& [name, value] :
       std::map<std::string, std::string>(info.parameters().begin(), info.parameters().end())) {
    parameters[name] = value;
  }
  Json json = {{"id", info.id()},
               {"project", info.project()},
               {"name", info.name()},
               {"note", info.note()},
               {"user", info.user()},
               {"framework", info.framework()},
               {"state", info.state()},
               {"reason", info.reason()},
               {"waits_for", info.waits_for()},
               {"hint", info.hint()},
               {"exit_code", is_over(info.state()) ? Json(info.exit_code()) : Json()},
               {"submitted_unix_ms", time_of(info.submitted_unix_ms())},
               {"started_unix_ms", time_of(info.started_unix_ms())},
               {"finished_unix_ms", time_of(info.finished_unix_ms())},
               {"ended_early", info.ended_early()},
               {"attempt", info.attempt()},
               {"replicas_count", info.replicas()},
               {"parameters", std::move(parameters)},
               {"metrics", metrics_of(info)},
               {"project_dir", info.project_dir()}};
  if (info.members() != 0) {
    json["set"] = {{"members", info.members()},
                   {"finished", info.members_finished()},
                   {"failed", info.members_failed()},
                   {"running", info.members_running()},
                   {"ended_early", info.members_ended_early()}};
  } else {
    json["set"] = nullptr;
  }
  return json;
}

Json json_of(const pb::ReplicaInfo& replica) {
  const pb::SeatInfo& seat = replica.seat();
  const bool placed = !seat.host_id().empty() || !seat.host_name().empty();
  return {{"id", replica.id()},
          {"state", replica.state()},
          {"reason", replica.reason()},
          {"exit_code", replica.exited() ? Json(replica.exit_code()) : Json()},
          {"attempt", replica.attempt()},
          {"pid", replica.pid() == 0 ? Json() : Json(replica.pid())},
          {"host", placed ? Json(seat.host_name()) : Json()},
          {"host_id", placed ? Json(seat.host_id()) : Json()},
          {"address", placed ? Json(seat.address()) : Json()},
          {"port", seat.port() == 0 ? Json() : Json(seat.port())},
          {"gpus", Json(std::vector<uint32_t>(seat.gpus().begin(), seat.gpus().end()))},
          {"cpus", seat.cpus()},
          {"memory_bytes", seat.memory_bytes()},
          {"rank", placed ? Json(seat.rank()) : Json()},
          {"started_unix_ms", time_of(replica.started_unix_ms())},
          {"finished_unix_ms", time_of(replica.finished_unix_ms())},
          {"cpu_seconds", replica.cpu_seconds()},
          {"memory_peak_bytes", replica.memory_peak_bytes()},
          {"read_bytes", replica.read_bytes()},
          {"written_bytes", replica.written_bytes()}};
}

Json json_of(const pb::HostInfo& host) {
  Json gpus = Json::array();
  for (const auto& gpu : host.gpus()) {
    gpus.push_back({{"index", gpu.index()},
                    {"name", gpu.name()},
                    {"uuid", gpu.uuid()},
                    {"bus_id", gpu.bus_id()},
                    {"memory_bytes", gpu.memory_bytes()},
                    {"busy", gpu.busy()},
                    {"numa_node", gpu.has_numa_node() ? Json(gpu.numa_node()) : Json()}});
  }
  return {{"id", host.id()},
          {"name", host.name()},
          {"address", host.address()},
          {"connected", host.connected()},
          {"drained", host.drained()},
          {"revoked", host.revoked()},
          {"labels", std::vector<std::string>(host.labels().begin(), host.labels().end())},
          {"cpus", host.cpus()},
          {"cpus_free", host.cpus_free()},
          {"memory_bytes", host.memory_bytes()},
          {"memory_free_bytes", host.memory_free_bytes()},
          {"gpus", std::move(gpus)},
          {"gpus_free", host.gpus_free()},
          {"gpu_note", host.gpu_note()},
          {"replicas_count", host.replicas()},
          {"cgroup", host.cgroup()},
          {"version", host.version()},
          {"last_contact_ms", host.last_contact_ms()}};
}

Json experiments_of(const pb::ListReply& reply) {
  Json experiments = Json::array();
  for (const auto& info : reply.experiments()) experiments.push_back(json_of(info));
  return experiments;
}

}  // namespace

std::string to_json(const pb::ListReply& reply, bool older_left_out) {
  return line_of({{"experiments", experiments_of(reply)}, {"older_left_out", older_left_out}});
}

Json json_of(const std::optional<BestMember>& best) {
  return best ? Json{{"id", best->id}, {"metric", best->metric}, {"value", best->value}, {"parameters", best->given}} : Json();
}

std::string to_json(const pb::ShowReply& reply, const Why& why, const std::optional<BestMember>& best) {
  Json json = json_of(reply.experiment());
  json["best"] = json_of(best);
  json["output_dir"] = reply.output_dir();
  json["after"] = std::vector<std::string>(reply.after().begin(), reply.after().end());
  json["after_end"] = std::vector<std::string>(reply.after_end().begin(), reply.after_end().end());
  json["host"] = reply.host().empty() ? Json() : Json(reply.host());
  std::string snapshot;
  for (const char c : reply.snapshot()) {
    snapshot += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  json["snapshot"] = snapshot;
  json["spec_yaml"] = reply.spec_yaml();
  json["user_env"] = Json::object();
  for (const auto& [name, value] : reply.user_env()) json["user_env"][name] = value;
  json["replicas"] = Json::array();
  for (const auto& replica : reply.replicas()) json["replicas"].push_back(json_of(replica));
  json["members"] = Json::array();
  for (const auto& member : reply.members()) json["members"].push_back(json_of(member));
  json["members_left_out"] = reply.members_left_out();
  json["events_left_out"] = reply.events_left_out();
  json["events"] = Json::array();
  for (const auto& event : reply.events()) {
    json["events"].push_back({{"id", event.id()},
                              {"state", event.state()},
                              {"reason", event.reason()},
                              {"time_unix_ms", time_of(event.time_unix_ms())},
                              {"attempt", event.attempt()}});
  }
  json["log_lines"] = why.log_lines;
  return line_of(json);
}

std::string to_json(const pb::KillReply& reply) {
  Json killed = Json::array();
  for (const auto& item : reply.items()) {
    killed.push_back(
        {{"id", item.id()}, {"already_over", item.already_over()}, {"message", item.message()}});
  }
  return line_of({{"killed", std::move(killed)}});
}

std::string to_json(const pb::SuspendReply& reply) {
  Json experiments = Json::array();
  for (const auto& item : reply.items()) {
    experiments.push_back({{"id", item.id()}, {"changed", item.changed()}, {"state", item.state()}});
  }
  return line_of({{"experiments", std::move(experiments)}});
}

std::string to_json(const pb::PruneReply& reply, bool done) {
  return line_of({{"pruned", done},
                  {"experiments", reply.numbers()},
                  {"log_bytes", reply.log_bytes()},
                  {"blob_bytes", reply.blob_bytes()},
                  {"environments", reply.environments()},
                  {"environment_bytes", reply.environment_bytes()},
                  {"cache_bytes", reply.tree_bytes()}});
}

std::string to_json(const pb::DrainReply& reply, bool undrain) {
  return line_of({{"host", reply.name()}, {"drained", !undrain}, {"experiments", reply.experiments()}});
}

std::string to_json(const pb::UsersReply& reply) {
  Json users = Json::array();
  for (const auto& user : reply.users()) users.push_back({{"name", user.name()}, {"admin", user.admin()}});
  return line_of({{"you", reply.user().empty() ? Json() : Json(reply.user())}, {"admin", reply.admin()}, {"users", std::move(users)}});
}

std::string to_json(const pb::HostsReply& reply) {
  Json hosts = Json::array();
  for (const auto& host : reply.hosts()) hosts.push_back(json_of(host));
  Json pools = Json::array();
  for (const auto& pool : reply.pools()) {
    Json allocations = Json::array();
    for (const auto& one : pool.allocations()) {
      allocations.push_back({{"name", one.name()},
                             {"job", one.job().empty() ? Json() : Json(one.job())},
                             {"state", one.state()},
                             {"reason", one.reason()},
                             {"hosts", one.hosts()},
                             {"hosts_joined", one.joined()},
                             {"for", one.for_whom()}});
    }
    pools.push_back({{"name", pool.name()},
                     {"kind", pool.kind()},
                     {"hosts", pool.hosts()},
                     {"hosts_max", pool.hosts_max()},
                     {"trouble", pool.trouble()},
                     {"allocations", std::move(allocations)}});
  }
  return line_of({{"hosts", std::move(hosts)},
                  {"pools", std::move(pools)},
                  {"invited", std::vector<std::string>(reply.invited().begin(), reply.invited().end())}});
}

std::string daemon_json(const Home& home, const pb::InfoReply* info, bool stopped_by_hand,
                        const pb::ListReply* live) {
  Json json = {{"running", info != nullptr},        {"stopped_by_hand", stopped_by_hand},
               {"home", home.root.string()},        {"socket", home.socket().string()},
               {"log", home.daemon_log().string()}, {"cli_version", kVersion},
               {"cli_protocol", kProtocol}};
  json["pid"] = info == nullptr ? Json() : Json(info->pid());
  json["version"] = info == nullptr ? Json() : Json(info->version());
  json["protocol"] = info == nullptr ? Json() : Json(info->protocol());
  json["started_unix_ms"] = info == nullptr ? Json() : time_of(info->started_unix_ms());
  json["experiments_live"] = info == nullptr ? Json() : Json(info->experiments_live());
  json["replicas_running"] = info == nullptr ? Json() : Json(info->replicas_running());
  json["trouble"] = info == nullptr ? Json() : Json(info->trouble());
  json["listens"] = info == nullptr || info->listens().empty() ? Json() : Json(info->listens());
  json["listen_trouble"] = info == nullptr ? Json() : Json(info->listen_trouble());
  json["open_metrics"] = info == nullptr || info->open_metrics().empty() ? Json() : Json(info->open_metrics());
  json["open_metrics_trouble"] = info == nullptr ? Json() : Json(info->open_metrics_trouble());
  json["quotas"] = Json::array();
  if (info != nullptr) {
    for (const pb::UserInfo& user : info->users()) json["quotas"].push_back(quota_json(user));
  }
  json["hosts_connected"] = info == nullptr ? Json() : Json(info->hosts_connected());
  json["experiments"] = live == nullptr ? Json::array() : experiments_of(*live);
  return line_of(json);
}

std::string shutdown_json(const pb::ShutdownReply& reply, bool was_running) {
  const std::vector<std::string> left(reply.left_running().begin(), reply.left_running().end());
  return line_of(
      {{"was_running", was_running}, {"left_running", was_running ? Json(left) : Json()}});
}

std::string output_json(const std::string& id, const std::string& directory,
                        const std::vector<OutputFile>& files) {
  Json listed = Json::array();
  for (const OutputFile& file : files) {
    listed.push_back({{"path", file.path},
                      {"size_bytes", file.size_bytes},
                      {"link_to", file.link_to.empty() ? Json() : Json(file.link_to)}});
  }
  return line_of({{"id", id}, {"output_dir", directory.empty() ? Json() : Json(directory)}, {"files", std::move(listed)}});
}

std::string check_json(const std::string& file, const Spec* spec, const std::vector<Mistake>& mistakes,
                       const std::vector<std::string>& warnings, const std::vector<std::string>& notes) {
  Json listed = Json::array();
  for (const Mistake& mistake : mistakes) {
    listed.push_back({{"file", mistake.file},
                      {"line", mistake.line == 0 ? Json() : Json(mistake.line)},
                      {"column", mistake.line == 0 ? Json() : Json(mistake.column)},
                      {"message", mistake.message},
                      {"hint", mistake.hint}});
  }
  Json roles = Json::array();
  for (const RoleSpec& role : spec == nullptr ? std::vector<RoleSpec>() : spec->roles) {
    roles.push_back({{"role", to_string(role.role)},
                     {"count", role.count},
                     {"least", spec->elastic && role.role == Role::Worker ? spec->elastic->least_of_role : role.count},
                     {"cpus", role.resources.cpus},
                     {"memory_bytes", role.resources.memory_bytes},
                     {"gpus", role.resources.gpus}});
  }
  return line_of({{"file", file},
                  {"project", spec == nullptr ? Json() : Json(spec->project)},
                  {"framework", spec == nullptr ? Json() : Json(to_string(spec->framework))},
                  {"roles", std::move(roles)},
                  {"members", spec != nullptr && spec->is_set() ? spec->member_count() : 0},
                  {"mistakes", std::move(listed)},
                  {"warnings", warnings},
                  {"notes", notes}});
}

std::string compare_json(const Comparison& comparison) {
  Json experiments = Json::array();
  for (const Entry& entry : comparison.entries) {
    Json json = json_of(entry.info);
    const auto maybe = [](const std::optional<double>& number) {
      return number ? Json(*number) : Json();
    };
    json["settings"] = Json::object();
    for (const auto& [name, value] : entry.settings) json["settings"][name] = value;
    json["workers"] = entry.workers == 0 ? Json() : Json(entry.workers);
    json["rate"] = maybe(entry.rate);
    json["speedup"] = maybe(entry.speedup);
    json["efficiency"] = maybe(entry.efficiency);
    experiments.push_back(std::move(json));
  }
  Json columns = Json::array();
  for (const EntryColumn& column : comparison.columns) columns.push_back(column.name);
  Json same = Json::object();
  for (const auto& [name, value] : comparison.same) same[name] = value;
  return line_of({{"experiments", std::move(experiments)},
                  {"columns", std::move(columns)},
                  {"same_parameters", std::move(same)},
                  {"rate", comparison.rate.empty() ? Json() : Json(comparison.rate)}});
}

std::string why_json(const pb::ExperimentInfo& info, const Why& why) {
  return line_of({{"id", info.id()},
                  {"state", info.state()},
                  {"reason", why.reason},
                  {"replica", why.replica.empty() ? Json() : Json(why.replica)},
                  {"exit_code", is_over(info.state()) ? Json(info.exit_code()) : Json()},
                  {"hint", why.hint},
                  {"log", why.log_command},
                  {"log_lines", why.log_lines}});
}

std::string tensorboard_json(const std::string& id, const std::string& replica,
                             const std::string& address) {
  return line_of({{"id", id}, {"replica", replica}, {"address", address}});
}

}  // namespace dtrain::cli
