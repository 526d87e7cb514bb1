#include "daemon/notices.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>


namespace dtrain::daemon {

namespace {

size_t free_gpus(const Model& model) {
  size_t count = 0;
  for (const auto& [id, host] : model.hosts) {
    if (!host.connected) continue;
    count += static_cast<size_t>(std::count_if(host.gpus.begin(), host.gpus.end(),
                                               [](const Gpu& gpu) { return gpu.busy.empty(); }));
  }
  for (const ExperimentId& id : model.live) {
    const auto found = model.experiments.find(id);
    if (found == model.experiments.end()) continue;
    for (const Replica& replica : found->second.replicas) {
      if (replica.progress == Progress::Released) continue;
      count -= std::min(count, replica.seat.gpus.size());
    }
  }
  return count;
}

}  // namespace

std::vector<std::string> notices_of(const Spec& spec, const Model& model) {
  std::vector<std::string> lines;
  if (spec.suspend) lines.push_back("It begins suspended; `dtrain resume` lets it go on");
  if (spec.tensorflow.tensorboard) {
    lines.push_back("TensorBoard runs beside it; `dtrain tensorboard` prints the address");
  }
  const bool asks = std::any_of(spec.roles.begin(), spec.roles.end(),
                                [](const RoleSpec& role) { return role.resources.gpus > 0; });
  const size_t gpus = asks ? 0 : free_gpus(model);
  if (gpus > 0) {
    lines.push_back(fmt::format("{} free and hidden from it; ask with `resources: {{gpus: 1}}`",
                                gpus == 1 ? "1 GPU is" : fmt::format("{} GPUs are", gpus)));
  }
  return lines;
}

}  // namespace dtrain::daemon
