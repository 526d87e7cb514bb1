#include "daemon/open_metrics.h"

#include <doctest/doctest.h>

#include <chrono>
#include <limits>
#include <set>
#include <sstream>

#include "daemon/lifecycle.h"

namespace dtrain::daemon {
namespace {

std::string text_of(const Model& model, const Observed& observed, MetricsFormat format, std::vector<pb::ReplicaUsage> usage = {},
                    std::vector<SaidValue> values = {}) {
  return open_metrics_text({model, observed, {}, std::move(usage), std::move(values), 1}, format);
}

bool has_line(const std::string& text, const std::string& wanted) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line == wanted) return true;
  }
  return false;
}

TEST_CASE("each family is described once, before its samples, and no sample comes twice") {
  Model model;
  for (const char* hex : {"a", "b"}) {
    Host host;
    host.id.hex = hex;
    host.name = "same";   // as two hosts may have it
    host.cpus = 4;
    step(model, HostConnected{host, {}}, Policy(), 1);
  }
  for (const MetricsFormat format : {MetricsFormat::OpenMetrics, MetricsFormat::Prometheus}) {
    std::istringstream lines(text_of(model, {}, format));
    std::set<std::string> families, samples;
    std::string family, line, last;
    for (; std::getline(lines, line); last = line) {
      if (line.starts_with("# TYPE ")) {
        family = line.substr(7, line.find(' ', 7) - 7);
        CHECK_MESSAGE(families.insert(family).second, line);
      } else if (!line.starts_with('#')) {
        CHECK_MESSAGE(line.starts_with(family), line, " of ", family);
        CHECK_MESSAGE(samples.insert(line.substr(0, line.rfind(' '))).second, line);
      }
    }
    CHECK((last == "# EOF") == (format == MetricsFormat::OpenMetrics));
    CHECK(samples.contains("dtrain_host_cpus{host=\"same\",host_id=\"b\"}"));
  }
}

TEST_CASE("users: what they have, and may have") {
  Model model;
  model.quotas = {{"anna", 8, uint64_t{4} << 30, {}}, {"bert", {}, {}, 2}};
  model.users["anna"].preemptible = {1.5, 1024, 3, 1};
  model.users["carl"].counted = {2, 512, 0, 2};
  const std::string text = text_of(model, {}, MetricsFormat::OpenMetrics);
  CHECK(has_line(text, "dtrain_user_cpus{user=\"anna\",preemptible=\"no\"} 0"));
  CHECK(has_line(text, "dtrain_user_cpus{user=\"anna\",preemptible=\"yes\"} 1.5"));
  CHECK(has_line(text, "dtrain_user_gpus{user=\"anna\",preemptible=\"yes\"} 3"));
  CHECK(has_line(text, "dtrain_user_memory_bytes{user=\"carl\",preemptible=\"no\"} 512"));
  CHECK_FALSE(has_line(text, "dtrain_user_gpus{user=\"carl\",preemptible=\"yes\"} 0"));
  CHECK(has_line(text, "dtrain_user_cpus_quota{user=\"anna\"} 8"));
  CHECK(has_line(text, "dtrain_user_memory_quota_bytes{user=\"anna\"} 4294967296"));
  CHECK(has_line(text, "dtrain_user_gpus_quota{user=\"bert\"} 2"));
  CHECK(text.find("dtrain_user_gpus_quota{user=\"anna\"}") == std::string::npos);
}

TEST_CASE("counters are named as each format has it") {
  Observed observed;
  observed.ended[State::Failed] = 3;
  observed.gave_way = 2;
  const std::string open = text_of({}, observed, MetricsFormat::OpenMetrics), old = text_of({}, observed, MetricsFormat::Prometheus);
  CHECK(has_line(open, "# TYPE dtrain_experiments_ended counter"));
  CHECK(has_line(old, "# TYPE dtrain_experiments_ended_total counter"));
  for (const std::string& text : {open, old}) {
    CHECK(has_line(text, "dtrain_experiments_ended_total{state=\"FAILED\"} 3"));
    CHECK(has_line(text, "dtrain_experiments_ended_total{state=\"KILLED\"} 0"));
    CHECK(has_line(text, "dtrain_preemptions_total 2"));
    CHECK(has_line(text, "dtrain_experiments{state=\"PENDING\"} 0"));
  }
}

TEST_CASE("a histogram counts what is no longer than each bound") {
  Observed observed;
  using namespace std::chrono_literals;
  for (const auto took : {50us, 100us, 2'000us, 100'000'000us}) observed.placing.add(took);
  const std::string text = text_of({}, observed, MetricsFormat::OpenMetrics);
  CHECK(has_line(text, "dtrain_placing_seconds_bucket{le=\"0.0001\"} 2"));
  CHECK(has_line(text, "dtrain_placing_seconds_bucket{le=\"0.001\"} 2"));
  CHECK(has_line(text, "dtrain_placing_seconds_bucket{le=\"0.003\"} 3"));
  CHECK(has_line(text, "dtrain_placing_seconds_bucket{le=\"+Inf\"} 4"));
  CHECK(has_line(text, "dtrain_placing_seconds_count 4"));
}

TEST_CASE("what people call things, and what programs say, is quoted") {
  pb::ReplicaUsage usage;
  usage.set_replica("4.2.worker.1");
  usage.set_host_name("a\"b\\c\nd");
  usage.set_cpu_percent(150);
  pb::GpuUsage& gpu = *usage.add_gpus();
  gpu.set_index(3);
  gpu.set_name("H100");
  gpu.set_utilization_percent(25);
  const std::string text = text_of({}, {}, MetricsFormat::OpenMetrics, {usage},
                                   {{{4, 2}, "loss", std::numeric_limits<double>::quiet_NaN()},
                                    {{4, 3}, "samples/s", -std::numeric_limits<double>::infinity()}});
  const std::string labels = R"(experiment="4.2",replica="4.2.worker.1",host="a\"b\\c\nd")";
  CHECK(has_line(text, "dtrain_replica_cpus{" + labels + "} 1.5"));
  CHECK(has_line(text, "dtrain_gpu_utilization_ratio{" + labels + R"(,gpu="3",gpu_name="H100"} 0.25)"));
  CHECK(has_line(text, R"(dtrain_metric{project="",experiment="4.2",name="loss"} NaN)"));
  CHECK(has_line(text, R"(dtrain_metric{project="",experiment="4.3",name="samples/s"} -Inf)"));
}

}  // namespace
}  // namespace dtrain::daemon
