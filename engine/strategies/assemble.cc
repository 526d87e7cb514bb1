#include "engine/strategies/assemble.h"

#include <fmt/ranges.h>

#include <map>

#include "engine/comm/hash.h"
#include "engine/comm/rendezvous.h"

namespace dtrain::engine {

Result<std::unique_ptr<Gang>> assemble(const RunPlan& plan, Listener listener) {
  const Attendance own{.place = plan.place,
                       .threads = plan.threads,
                       .layout_hash = plan.layout.hash(),
                       .spec_hash = hash_of(to_json(without_paths(plan.spec)), plan.data.hash),
                       .instructions = plan.instructions()};
  TRY(auto gang, meet(own, Deadline::after(plan.spec.deadline_seconds), std::move(listener)));
  if (const std::string note = unlike_instructions(*gang); plan.place.is_master() && !note.empty()) {
    fmt::print(stderr, "{}\n", note);
  }
  return gang;
}

std::string unlike_instructions(const Gang& gang) {
  std::map<std::string, std::vector<std::string>> by_instructions;
  for (int process = 0; process < gang.size(); ++process) {
    const Peer& peer = gang.peer(process);
    by_instructions[peer.instructions].push_back(peer.name);
  }
  if (by_instructions.size() < 2) return "";
  std::vector<std::string> parts;
  for (const auto& [instructions, names] : by_instructions) {
    parts.push_back(fmt::format("{} by {}", instructions, fmt::join(names, ", ")));
  }
  return fmt::format(
      "computed with {}: another split comes to other last bits; DTRAIN_ISA makes the instructions the same",
      fmt::join(parts, ", with "));
}

}  // namespace dtrain::engine
