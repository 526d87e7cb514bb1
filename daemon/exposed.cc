#include "daemon/exposed.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "schema/clock.h"

namespace dtrain::daemon {

namespace fs = std::filesystem;

OwnUsage own_usage(const Home& home) {
  OwnUsage own;
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    const auto seconds = [](const timeval& time) { return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6; };
    own.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  }
  uint64_t all_pages = 0, pages = 0;   // proc(5)
  if (std::ifstream("/proc/self/statm") >> all_pages >> pages) own.memory_bytes = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  std::error_code error;
  for (fs::directory_iterator fd("/proc/self/fd", error); !error && fd != fs::directory_iterator(); fd.increment(error)) ++own.descriptors;
  const fs::space_info space = fs::space(home.root, error);
  if (!error) own.disk_free_bytes = space.available;
  return own;
}

Exposed expose(const OwnUsage& own, Scheduler& scheduler, Metrics& metrics, Monitor& monitor) {
  const Model& model = scheduler.model();
  Exposed exposed{model, scheduler.observed(), own, monitor.all_usage(), {}, boottime_ms()};
  const Submission* seen = nullptr;
  for (const ExperimentId& id : model.live) {
    const auto& submission = model.experiments.at(id).submission;
    if (std::exchange(seen, submission.get()) == submission.get() || submission->spec.metrics.empty()) continue;
    const auto values = metrics.values(*submission, true);
    if (!values.ok()) continue;   // said elsewhere
    for (const auto& [member, said] : *values) {
      const ExperimentId each{submission->number, member};
      if (!model.live.contains(each)) continue;
      for (const pb::Metric& metric : said) exposed.values.push_back({each, metric.name(), metric.last()});
    }
  }
  return exposed;
}

}  // namespace dtrain::daemon
