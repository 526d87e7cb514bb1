#include "daemon/open_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>

#include "daemon/describe.h"
#include "daemon/quota.h"
#include "schema/version.h"

namespace dtrain::daemon {

namespace {

constexpr State kLiveStates[] = {State::Created,    State::Pending,   State::Building, State::Starting, State::Running,
                                 State::Stopping,   State::Restarting, State::Suspended};
constexpr State kEnds[] = {State::Finished, State::Failed, State::Killed};

using Label = std::pair<std::string_view, std::string>;
using Labels = std::vector<Label>;

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') out += '\\';
    out += c;
  }
  return out;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

class Writer {
 public:
  explicit Writer(MetricsFormat format) : format_(format) {}

  // Followed by all of its samples. `unit` is the end of its name, or empty.
  void family(std::string name, std::string_view type, std::string_view unit, std::string_view help) {
    name_ = std::move(name);
    is_counter_ = type == "counter";
    const bool is_open = format_ == MetricsFormat::OpenMetrics;
    const std::string named = name_ + (is_counter_ && !is_open ? "_total" : "");
    put("# TYPE {} {}\n", named, is_open || type != "info" ? type : "gauge");
    if (is_open && !unit.empty()) put("# UNIT {} {}\n", named, unit);
    put("# HELP {} {}\n", named, help);
  }
  void sample(const Labels& labels, double value) { sample(is_counter_ ? "_total" : "", labels, value); }
  void sample(std::string_view suffix, const Labels& labels, double value) {
    put("{}{}", name_, suffix);
    for (size_t i = 0; i < labels.size(); ++i) {
      put("{}{}=\"{}\"", i == 0 ? "{" : ",", labels[i].first, escaped(labels[i].second));
    }
    put("{} {}\n", labels.empty() ? "" : "}", number_text(value));
  }
  void histogram(const Histogram& histogram) {
    uint64_t count = 0;
    for (size_t i = 0; i < histogram.counts().size(); ++i) {
      count += histogram.counts()[i];
      const bool last = i == Histogram::kBounds.size();
      sample("_bucket", {{"le", last ? "+Inf" : number_text(Histogram::kBounds[i])}}, static_cast<double>(count));
    }
    sample("_count", {}, static_cast<double>(count));
    sample("_sum", {}, histogram.sum_seconds());
  }
  std::string end() {
    if (format_ == MetricsFormat::OpenMetrics) text_ += "# EOF\n";
    return std::move(text_);
  }

 private:
  template <typename... Values>
  void put(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Values>(values)...);
  }

  const MetricsFormat format_;
  std::string text_, name_;
  bool is_counter_ = false;
};

void write_daemon(Writer& out, const OwnUsage& own) {
  out.family("dtrain_build", "info", "", "The daemon's version.");
  out.sample("_info", {{"version", kVersion}}, 1);
  out.family("process_cpu_seconds", "counter", "seconds", "Processor time that the daemon has used.");
  out.sample({}, own.cpu_seconds);
  out.family("process_resident_memory_bytes", "gauge", "bytes", "Memory of the daemon.");
  out.sample({}, static_cast<double>(own.memory_bytes));
  out.family("process_open_fds", "gauge", "", "Descriptors of the daemon.");
  out.sample({}, static_cast<double>(own.descriptors));
  out.family("process_start_time_seconds", "gauge", "seconds", "When the daemon began, since 1970.");
  out.sample({}, own.started_unix_seconds);
  out.family("dtrain_home_free_bytes", "gauge", "bytes", "Room on the disk of DTRAIN_HOME.");
  out.sample({}, static_cast<double>(own.disk_free_bytes));
}

void write_experiments(Writer& out, const Model& model, const Observed& observed) {
  std::map<State, uint64_t> live;
  for (const ExperimentId& id : model.live) {
    const Experiment& experiment = model.experiments.at(id);
    if (!experiment.is_shared()) ++live[state_of(experiment)];
  }
  out.family("dtrain_experiments", "gauge", "", "Experiments that are not over, each member of a set by itself.");
  for (const State state : kLiveStates) out.sample({{"state", std::string(to_string(state))}}, static_cast<double>(live[state]));
  out.family("dtrain_experiments_ended", "counter", "", "Experiments that have ended since the daemon began.");
  for (const State state : kEnds) {
    const auto count = observed.ended.find(state);
    out.sample({{"state", std::string(to_string(state))}}, count == observed.ended.end() ? 0 : static_cast<double>(count->second));
  }
  out.family("dtrain_starts", "counter", "", "Attempts of which all processes have begun, since the daemon began.");
  out.sample({}, static_cast<double>(observed.starts));
  out.family("dtrain_preemptions", "counter", "", "Experiments that gave way to others since the daemon began.");
  out.sample({}, static_cast<double>(observed.gave_way));
  out.family("dtrain_placing_seconds", "histogram", "seconds", "Passes over all that waits.");
  out.histogram(observed.placing);
  out.family("dtrain_commit_seconds", "histogram", "seconds", "Transactions of the database.");
  out.histogram(observed.committing);
}

// Whoever has something, and whoever may have only so much.
void write_users(Writer& out, const Model& model) {
  const auto held = [&](const char* name, const char* unit, const char* help, auto value) {
    out.family(name, "gauge", unit, help);
    for (const auto& [user, has] : model.users) {
      out.sample({{"user", user}, {"preemptible", "no"}}, static_cast<double>(value(has.counted)));
      if (has.preemptible.ports > 0) out.sample({{"user", user}, {"preemptible", "yes"}}, static_cast<double>(value(has.preemptible)));
    }
  };
  held("dtrain_user_cpus", "", "Cpus that a user's experiments have.", [](const Room& sum) { return sum.cpus; });
  held("dtrain_user_memory_bytes", "bytes", "Memory that they have.", [](const Room& sum) { return sum.memory_bytes; });
  held("dtrain_user_gpus", "", "GPUs that they have.", [](const Room& sum) { return sum.gpus; });
  const auto most = [&](const char* name, const char* unit, const char* help, auto value) {
    out.family(name, "gauge", unit, help);
    for (const UserUse& use : users_of(model)) {
      const auto limit = use.quota == nullptr ? std::nullopt : value(*use.quota);
      if (limit) out.sample({{"user", use.user}}, static_cast<double>(*limit));
    }
  };
  most("dtrain_user_cpus_quota", "", "Cpus that a user may have at once.", [](const Quota& quota) { return quota.cpus; });
  most("dtrain_user_memory_quota_bytes", "bytes", "Memory, likewise.", [](const Quota& quota) { return quota.memory_bytes; });
  most("dtrain_user_gpus_quota", "", "GPUs, likewise.", [](const Quota& quota) { return quota.gpus; });
}

void write_hosts(Writer& out, const Model& model, TimeMs now) {
  std::vector<pb::HostInfo> hosts;
  for (const auto& [id, host] : model.hosts) {
    if (!host.potential) hosts.push_back(describe(host, model, now));
  }
  // Two hosts may have one name; the ID tells them apart.
  const auto each = [&](const char* name, const char* unit, const char* help, auto value) {
    out.family(name, "gauge", unit, help);
    for (const pb::HostInfo& host : hosts) out.sample({{"host", host.name()}, {"host_id", host.id()}}, static_cast<double>(value(host)));
  };
  each("dtrain_host_up", "", "Whether the host's runner is connected.", [](const auto& host) { return host.connected(); });
  each("dtrain_host_drained", "", "Whether nothing more is placed there.", [](const auto& host) { return host.drained(); });
  each("dtrain_host_cpus", "", "Processors that it offers.", [](const auto& host) { return host.cpus(); });
  each("dtrain_host_cpus_free", "", "Processors that nobody has asked for.", [](const auto& host) { return host.cpus_free(); });
  each("dtrain_host_memory_bytes", "bytes", "Memory that it offers.", [](const auto& host) { return host.memory_bytes(); });
  each("dtrain_host_memory_free_bytes", "bytes", "Memory that nobody has asked for.", [](const auto& host) { return host.memory_free_bytes(); });
  each("dtrain_host_gpus", "", "GPUs that it has.", [](const auto& host) { return host.gpus_size(); });
  each("dtrain_host_gpus_free", "", "GPUs that nobody uses.", [](const auto& host) { return host.gpus_free(); });
  each("dtrain_host_replicas", "", "Replicas that are there.", [](const auto& host) { return host.replicas(); });
}

Labels labels_of(const pb::ReplicaUsage& usage, const Model& model) {
  Labels labels{{"replica", usage.replica()}, {"host", usage.host_name()}};
  if (const auto id = parse_replica_id(usage.replica()); id.ok()) {
    labels.insert(labels.begin(), {"experiment", to_string(id->experiment)});
    const auto found = model.experiments.find(id->experiment);
    if (found != model.experiments.end()) labels.insert(labels.begin(), {"project", found->second.spec().project});
  }
  return labels;
}

void write_replicas(Writer& out, const std::vector<pb::ReplicaUsage>& usage, const Model& model) {
  const auto each = [&](const char* name, const char* type, const char* unit, const char* help, auto value) {
    out.family(name, type, unit, help);
    for (const pb::ReplicaUsage& one : usage) out.sample(labels_of(one, model), static_cast<double>(value(one)));
  };
  each("dtrain_replica_cpus", "gauge", "", "Processors that it uses.", [](const auto& one) { return one.cpu_percent() / 100; });
  each("dtrain_replica_requested_cpus", "gauge", "", "Processors that it asked for.", [](const auto& one) { return one.requested_cpus(); });
  each("dtrain_replica_memory_bytes", "gauge", "bytes", "Memory that it uses.", [](const auto& one) { return one.memory_bytes(); });
  each("dtrain_replica_requested_memory_bytes", "gauge", "bytes", "Memory that it asked for.",
       [](const auto& one) { return one.requested_memory_bytes(); });
  each("dtrain_replica_read_bytes", "counter", "bytes", "Read since its start.", [](const auto& one) { return one.read_bytes(); });
  each("dtrain_replica_written_bytes", "counter", "bytes", "Written since its start.", [](const auto& one) { return one.written_bytes(); });
  const auto of_gpus = [&](const char* name, const char* unit, const char* help, auto value) {
    out.family(name, "gauge", unit, help);
    for (const pb::ReplicaUsage& one : usage) {
      for (const pb::GpuUsage& gpu : one.gpus()) {
        Labels labels = labels_of(one, model);
        labels.emplace_back("gpu", std::to_string(gpu.index()));
        labels.emplace_back("gpu_name", gpu.name());
        out.sample(labels, static_cast<double>(value(gpu)));
      }
    }
  };
  of_gpus("dtrain_gpu_utilization_ratio", "ratio", "Share of the last moments in which something ran on it.",
          [](const auto& gpu) { return gpu.utilization_percent() / 100; });
  of_gpus("dtrain_gpu_memory_used_bytes", "bytes", "Its memory that is in use.", [](const auto& gpu) { return gpu.memory_used_bytes(); });
  of_gpus("dtrain_gpu_memory_bytes", "bytes", "Its memory.", [](const auto& gpu) { return gpu.memory_total_bytes(); });
  of_gpus("dtrain_gpu_power_watts", "watts", "What it draws.", [](const auto& gpu) { return gpu.power_watts(); });
  of_gpus("dtrain_gpu_temperature_celsius", "celsius", "How hot it is.", [](const auto& gpu) { return gpu.temperature_c(); });
}

void write_values(Writer& out, const std::vector<SaidValue>& values, const Model& model) {
  out.family("dtrain_metric", "gauge", "", "The last value of what an experiment says of itself, by `metrics` of its YAML.");
  for (const SaidValue& said : values) {
    const auto found = model.experiments.find(said.experiment);
    const std::string project = found == model.experiments.end() ? "" : found->second.spec().project;
    out.sample({{"project", project}, {"experiment", to_string(said.experiment)}, {"name", said.name}}, said.value);
  }
}

}  // namespace

std::string open_metrics_text(const Exposed& exposed, MetricsFormat format) {
  Writer out(format);
  write_daemon(out, exposed.own);
  write_experiments(out, exposed.model, exposed.observed);
  write_users(out, exposed.model);
  write_hosts(out, exposed.model, exposed.now);
  write_replicas(out, exposed.usage, exposed.model);
  write_values(out, exposed.values, exposed.model);
  return out.end();
}

}  // namespace dtrain::daemon
