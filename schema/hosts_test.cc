#include "schema/hosts_test.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace dtrain {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kPrefix = "hosts-probe ";

Json json_of(const ProbeBegan& fact) { return {{"fact", "began"}, {"sent", fact.sent}}; }
Json json_of(const ProbeDisk& fact) {
  return {{"fact", "disk"}, {"output", fact.is_output}, {"rate", fact.bytes_per_s}, {"free", fact.free_bytes}, {"trouble", fact.trouble}};
}
Json json_of(const ProbeWrote& fact) { return {{"fact", "wrote"}, {"sha256", fact.sha256}}; }
Json json_of(const ProbeReach& fact) {
  return {{"fact", "reach"}, {"to", fact.to}, {"reach", static_cast<int>(fact.reach)}, {"error", fact.error}};
}
Json json_of(const ProbeLink& fact) {
  return {{"fact", "link"},
          {"to", fact.to},
          {"round_trip_ms", fact.round_trip_ms},
          {"sent", fact.sent_bytes_per_s},
          {"received", fact.received_bytes_per_s},
          {"ahead_ms", fact.clock_ahead_ms}};
}
Json json_of(const ProbeLeftOut& fact) { return {{"fact", "left-out"}, {"rounds", fact.rounds}, {"all", fact.rounds_all}}; }
Json json_of(const ProbeDone&) { return {{"fact", "done"}}; }

// The member as such a value, or what none is.
template <class Value>
Value member_of(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end()) return {};
  if constexpr (std::is_same_v<Value, std::string>) {
    return found->is_string() ? found->template get<std::string>() : Value();
  } else if constexpr (std::is_same_v<Value, bool>) {
    return found->is_boolean() && found->template get<bool>();
  } else {
    return found->is_number() ? found->template get<Value>() : Value();
  }
}

Reach reach_of(int number) {
  const bool is_known = number >= 0 && number <= static_cast<int>(Reach::Other);
  return is_known ? static_cast<Reach>(number) : Reach::Other;
}

}  // namespace

std::string hosts_test_output(int host) { return fmt::format("host-{}", host); }

std::string to_line(const ProbeFact& fact) {
  const Json json = std::visit([](const auto& one) { return json_of(one); }, fact);
  return fmt::format("{}{}\n", kPrefix, json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::optional<ProbeFact> parse_probe_line(std::string_view line) {
  if (!line.starts_with(kPrefix)) return std::nullopt;
  const Json json = Json::parse(line.substr(kPrefix.size()), nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto fact = member_of<std::string>(json, "fact");
  if (fact == "began") return ProbeBegan{member_of<std::string>(json, "sent")};
  if (fact == "disk") {
    return ProbeDisk{member_of<bool>(json, "output"), member_of<double>(json, "rate"), member_of<uint64_t>(json, "free"),
                     member_of<std::string>(json, "trouble")};
  }
  if (fact == "wrote") return ProbeWrote{member_of<std::string>(json, "sha256")};
  if (fact == "reach") return ProbeReach{member_of<int>(json, "to"), reach_of(member_of<int>(json, "reach")), member_of<std::string>(json, "error")};
  if (fact == "link") {
    return ProbeLink{member_of<int>(json, "to"), member_of<double>(json, "round_trip_ms"), member_of<double>(json, "sent"),
                     member_of<double>(json, "received"), member_of<double>(json, "ahead_ms")};
  }
  if (fact == "left-out") return ProbeLeftOut{member_of<int>(json, "rounds"), member_of<int>(json, "all")};
  if (fact == "done") return ProbeDone{};
  return std::nullopt;
}

}  // namespace dtrain
