#include "cli/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <cmath>
#include <utility>

#include "cli/connection.h"
#include "cli/remote.h"
#include "cli/remote_outputs.h"
#include "schema/ids.h"

namespace dtrain::cli {

namespace {

std::string_view last_part(std::string_view name) {
  const size_t slash = name.rfind('/');
  return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

pb::Metric to_metric(const std::string& name, const Scalar& scalar) {
  pb::Metric metric;
  metric.set_name(name);
  metric.set_last(scalar.last);
  metric.set_minimum(scalar.minimum);
  metric.set_maximum(scalar.maximum);
  metric.set_count(scalar.count);
  metric.set_step(scalar.last_step);
  return metric;
}

// What a declared name means; null when nothing, or nobody knows which.
const Scalar* find_scalar(const Scalars& scalars, const std::string& name) {
  if (const auto whole = scalars.find(name); whole != scalars.end()) return &whole->second;
  const Scalar* found = nullptr;
  for (const auto& [tag, scalar] : scalars) {
    if (last_part(tag) != name) continue;
    if (found != nullptr) return nullptr;
    found = &scalar;
  }
  return found;
}

}  // namespace

void add_scalars(const Scalars& scalars, const Spec& spec, pb::ExperimentInfo& info) {
  if (spec.metrics.empty()) {
    for (const auto& [tag, scalar] : scalars) *info.add_metrics() = to_metric(tag, scalar);
    return;
  }
  google::protobuf::RepeatedPtrField<pb::Metric> said;
  said.Swap(info.mutable_metrics());
  for (const Metric& declared : spec.metrics) {
    const auto known = std::find_if(said.begin(), said.end(), [&](const pb::Metric& metric) {
      return metric.name() == declared.name;
    });
    if (known != said.end()) {
      *info.add_metrics() = std::move(*known);
    } else if (const Scalar* scalar = find_scalar(scalars, declared.name)) {
      *info.add_metrics() = to_metric(declared.name, *scalar);
    } else if (info.started_unix_ms() != 0) {
      info.add_metrics()->set_name(declared.name);
    }
  }
}

namespace {

// Of the experiment, or of a member of the set: where its event files lie decides how they are read.
using ReadScalars = std::function<Scalars(uint32_t member)>;

void add_all_scalars(const ReadScalars& read, pb::ShowReply& reply) {
  const auto spec = parse_spec(reply.spec_yaml(), {});
  if (!spec.ok()) return;  // written by a newer dtrain: what the daemon says is shown all the same
  if (reply.experiment().members() == 0) add_scalars(read(0), *spec, *reply.mutable_experiment());
  for (pb::ExperimentInfo& member : *reply.mutable_members()) {
    const auto id = parse_experiment_id(member.id());
    if (!id.ok() || member.started_unix_ms() == 0) continue;
    add_scalars(read(id->member), *spec, member);
  }
}

// Over the connection: of all members one list, and only what are event files.
void add_remote_scalars(Connection& connection, pb::ShowReply& reply) {
  const std::string& id = reply.experiment().id();
  const auto listed = list_outputs(connection.channel(), id);
  if (!listed.ok()) return;   // it has written nothing: what the daemon says is shown all the same
  add_all_scalars(
      [&](uint32_t member) {
        const std::string folder = member == 0 ? "" : fmt::format("{}/", member);
        std::vector<std::string> paths;
        for (const pb::OutputEntry& entry : listed->entries) {
          if (entry.kind() == pb::Entry::FILE && entry.path().starts_with(folder)) paths.push_back(entry.path().substr(folder.size()));
        }
        return read_event_files(paths, [&](const std::string& path) {
          return EventFilePointer(open_output(connection.channel(), id, folder + path).release(), std::fclose);
        });
      },
      reply);
}

}  // namespace

void read_metrics(Connection& connection, pb::ShowReply& reply) {
  if (!remote_machine().empty()) return add_remote_scalars(connection, reply);
  const std::filesystem::path output = reply.output_dir();
  add_all_scalars([&](uint32_t member) { return read_event_files(member == 0 ? output : output / std::to_string(member)); }, reply);
}

std::string number_text(double value) {
  // Large rates are read as what they are; beyond that the exponent says more.
  const bool large = std::abs(value) >= 99999.5 && std::abs(value) < 1e7;
  return large ? fmt::format("{:.0f}", value) : fmt::format("{:.5g}", value);
}

std::vector<std::string> metric_names(const std::vector<const pb::ExperimentInfo*>& infos) {
  std::vector<std::string> names;
  for (const pb::ExperimentInfo* info : infos) {
    // Backwards, so that a new name finds the one that it stands before.
    auto before = names.end();
    for (int i = info->metrics_size() - 1; i >= 0; --i) {
      const std::string& name = info->metrics(i).name();
      const auto known = std::find(names.begin(), names.end(), name);
      before = known != names.end() ? known : names.insert(before, name);
    }
  }
  return names;
}

const pb::Metric* find_metric(const pb::ExperimentInfo& info, const std::string& name) {
  for (const pb::Metric& metric : info.metrics()) {
    if (metric.name() == name) return is_silent(metric) ? nullptr : &metric;
  }
  return nullptr;
}

}  // namespace dtrain::cli
