#include "engine/comm/place.h"

#include <nlohmann/json.hpp>

#include "engine/comm/hash.h"
#include "engine/comm/socket.h"
#include "engine/environment.h"

namespace dtrain::engine {
namespace {

using Json = nlohmann::json;

Error wrong(std::string what) {
  return {Code::InvalidArgument, "TF_CONFIG: " + std::move(what), ""};
}

Result<Json> parse_json(std::string_view text) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& error) {
    return wrong(error.what());
  }
}

// The addresses of one role, none if it is not there.
Result<std::vector<std::string>> addresses(const Json& cluster, const char* role) {
  std::vector<std::string> found;
  const auto list = cluster.find(role);
  if (list == cluster.end()) return found;
  if (!list->is_array()) return wrong(fmt::format("cluster.{} is not a list", role));
  for (const Json& address : *list) {
    if (!address.is_string()) {
      return wrong(fmt::format("cluster.{}[{}] is not a text", role, found.size()));
    }
    found.push_back(address.get<std::string>());
    if (const auto parsed = parse_host_port(found.back()); !parsed.ok()) {
      return wrong(
          fmt::format("cluster.{}[{}]: {}", role, found.size() - 1, parsed.error().message));
    }
  }
  return found;
}

}  // namespace

std::string process_name(Role role, int index, const std::string& address) {
  const bool is_worker = role == Role::Worker;
  return fmt::format("{} {}{}{}", is_worker ? "worker" : "ps", is_worker ? index : index + 1,
                     address.empty() ? "" : " at ", address);
}

uint64_t launch_key(std::string_view experiment, std::string_view attempt) {
  // A byte that neither holds keeps "1" "23" apart from "12" "3".
  return hash_of(attempt, hash_of(std::string_view("\0", 1), hash_of(experiment)));
}

Result<Place> parse_place(std::string_view tf_config, uint64_t key) {
  Place place;
  place.key = key;
  if (tf_config.empty()) {
    place.workers.emplace_back();
    return place;
  }
  TRY(const Json config, parse_json(tf_config));
  if (!config.is_object()) return wrong("not an object");
  const auto cluster = config.find("cluster");
  if (cluster == config.end() || !cluster->is_object()) return wrong("no object \"cluster\"");
  const auto task = config.find("task");
  if (task == config.end() || !task->is_object()) return wrong("no object \"task\"");
  const auto type = task->find("type");
  if (type == task->end() || !type->is_string()) return wrong("task.type is not a text");
  const auto index = task->find("index");
  if (index == task->end() || !index->is_number_integer()) {
    return wrong("task.index is not an integer");
  }

  for (const char* first : {"chief", "master"}) {
    TRY(const auto found, addresses(*cluster, first));
    place.workers.insert(place.workers.end(), found.begin(), found.end());
  }
  if (place.workers.size() > 1) return wrong("more than one chief or master");
  const auto before = static_cast<int64_t>(place.workers.size());
  TRY(const auto workers, addresses(*cluster, "worker"));
  place.workers.insert(place.workers.end(), workers.begin(), workers.end());
  TRY(place.ps, addresses(*cluster, "ps"));

  const auto name = type->get<std::string>();
  const auto given = index->get<int64_t>();
  int64_t at = given;
  if (name == "ps") {
    place.role = Role::Ps;
  } else if (name == "worker") {
    at = given <= INT64_MAX - before ? given + before : given;
  } else if (name != "chief" && name != "master") {
    return wrong(fmt::format("task.type \"{}\" is none of worker, chief, master and ps", name));
  }
  const auto count =
      static_cast<int64_t>(place.role == Role::Ps ? place.ps.size() : place.workers.size());
  if (given < 0 || given >= count || at >= count) {
    return wrong(fmt::format("there is no {} {} in the cluster", name, given));
  }
  if (place.workers.empty()) return wrong("a cluster without workers");
  place.index = static_cast<int>(at);
  return place;
}

std::string experiment_from_environment() {
  const std::string submission = variable("DTRAIN_SUBMISSION");  // none by hand
  return fmt::format("{}{}{}", variable("EXPERIMENT_ID"), submission.empty() ? "" : " ", submission);
}

Result<Place> place_from_environment() {
  return parse_place(variable("TF_CONFIG"), launch_key(experiment_from_environment(), variable("DTRAIN_ATTEMPT")));
}

}  // namespace dtrain::engine
