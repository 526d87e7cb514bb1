// The metrics of experiments as people see them: what the daemon read in their output, completed by
// what their event files say. The daemon's files are on this machine, so the CLI reads them itself.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/event_files.h"
#include "schema/dtrain.pb.h"
#include "schema/spec.h"

namespace dtrain::cli {

class Connection;

// Adds to `info` the scalars that it lacks: of those that the Spec declares, each by its whole name
// or, where only one ends like that, by its last part; all of them when it declares none. The
// result is in the Spec's order, else by name. What is declared and nowhere said is there all the same,
// once it has begun, with a count of 0: its name may be wrong.
void add_scalars(const Scalars& scalars, const Spec& spec, pb::ExperimentInfo& info);

// Reads the event files of the experiment, or of the members that the reply lists: over the connection, if the daemon that
// said it is elsewhere.
void read_metrics(Connection& connection, pb::ShowReply& reply);

// One number for a table: five significant digits, and of a number below ten million those before the
// point.
std::string number_text(double value);

// The names of all metrics of these. Each has its own in order, and lacks some: the order of them all.
std::vector<std::string> metric_names(const std::vector<const pb::ExperimentInfo*>& infos);
inline bool is_silent(const pb::Metric& metric) { return metric.count() == 0; }
// Null when the experiment has none of that name, or nothing said it.
const pb::Metric* find_metric(const pb::ExperimentInfo& info, const std::string& name);

}  // namespace dtrain::cli
