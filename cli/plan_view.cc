#include "cli/plan_view.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "cli/host_names.h"
#include "cli/table.h"
#include "cli/words.h"

namespace dtrain::cli {

namespace {

std::string gpus_text(const pb::SeatInfo& seat) {
  std::string text;
  for (uint32_t gpu : seat.gpus()) text += fmt::format("{}{}", text.empty() ? "" : ",", gpu);
  return text.empty() ? "-" : text;
}

// "4.worker.1" has no number yet: "worker.1".
std::string role_part(const std::string& replica) {
  size_t letter = replica.find_first_not_of("0123456789.");
  return letter == std::string::npos ? replica : replica.substr(letter);
}

}  // namespace

std::string render_plan(const pb::PlanReply& plan, const Spec& spec, const Screen& screen) {
  const int processes = plan.seats_size() > 0 ? plan.seats_size() : spec.replica_count();
  std::string out =
      fmt::format("Project {}, framework {}, {} process{}", spec.project, to_string(spec.framework), processes, processes == 1 ? "" : "es");
  const std::vector<std::string> images = spec.images();
  if (!images.empty()) out += fmt::format(", in the image{} {}", images.size() == 1 ? "" : "s", fmt::join(images, ", "));
  if (spec.is_set()) {
    out += fmt::format("; a set of {}, {}", spec.member_count(),
                       spec.source.empty() ? "each placed like this one" : "of which this is the first");
  }
  out = folded(out, screen.width) + "\n";
  if (plan.seats_size() > 0) {
    Table table;
    table.columns = {{"REPLICA", 11}, {"HOST", 8, 0, true}, {"ADDRESS", 9, 2}, {"CPUS", 4},
                     {"MEM", 8},      {"GPUS", 4},          {"RANK", 4, 1}};
    HostNames names;
    for (const pb::SeatInfo& seat : plan.seats()) names.add(seat.host_name(), seat.host_id());
    for (const pb::SeatInfo& seat : plan.seats()) {
      table.rows.push_back(
          {{role_part(seat.replica())},
           {names.shown(seat.host_name(), seat.host_id())},
           {seat.port() == 0 ? seat.address() : fmt::format("{}:{}", seat.address(), seat.port())},
           {fmt::format("{}", seat.cpus())},
           {human_memory(seat.memory_bytes())},
           {gpus_text(seat)},
           {fmt::format("{}", seat.rank())}});
    }
    out += render(table, screen);
  }
  if (!plan.notice().empty()) out += folded(plan.notice(), screen.width) + "\n";
  if (!plan.wait_reason().empty()) {
    const std::string& reason = plan.wait_reason();   // "waits for 4 (RUNNING) to finish", or what there is no room for
    const std::string text = reason.starts_with("waits ") ? "It would wait" + reason.substr(5) : "It would wait: " + reason;
    out += paint(folded(text, screen.width), Ink::Yellow, screen.colours) + "\n";
  } else {
    out += folded("It would start at once. Nothing was submitted.", screen.width) + "\n";
  }
  return out;
}

std::string plan_json(const pb::PlanReply& plan) {
  nlohmann::ordered_json seats = nlohmann::ordered_json::array();
  for (const pb::SeatInfo& seat : plan.seats()) {
    seats.push_back({{"replica", role_part(seat.replica())},
                     {"host", seat.host_name()},
                     {"host_id", seat.host_id()},
                     {"address", seat.address()},
                     {"port", seat.port()},
                     {"cpus", seat.cpus()},
                     {"memory_bytes", seat.memory_bytes()},
                     {"gpus", std::vector<uint32_t>(seat.gpus().begin(), seat.gpus().end())},
                     {"rank", seat.rank()},
                     {"local_rank", seat.local_rank()}});
  }
  nlohmann::ordered_json object = {{"starts_now", plan.wait_reason().empty()},
                                   {"wait_reason", plan.wait_reason()},
                                   {"notice", plan.notice()},
                                   {"seats", seats}};
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace dtrain::cli
