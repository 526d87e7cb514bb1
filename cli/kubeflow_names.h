// Names as Kubeflow's are, "mnist-4" of experiment 4 and "mnist-4-worker-0" of a replica, in the place of IDs.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"
#include "schema/dtrain.pb.h"
#include "schema/ids.h"
#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain::cli {

// As `status --kubeflow` lists it: what the experiment, or else its project, is called, and its ID.
std::string kubeflow_name(const pb::ExperimentInfo& info);
// "worker-0", counted from 0 as the manifest of the Spec counts it; empty: Kubeflow has none of that role.
std::string kubeflow_replica(const Spec& spec, const ReplicaId& id);

struct KubeflowName {
  std::string job;          // "mnist"
  ExperimentId experiment;  // 4
  std::string replica;      // "worker-0"; empty: the experiment
};
// What a text may mean: two things where a job is called like a replica. None: it is no such name.
std::vector<KubeflowName> meanings_of(std::string_view text);

// The ID that it is. InvalidArgument: what was shown of the experiment says that it, or the replica, is called otherwise.
Result<std::string> id_of(const KubeflowName& name, const pb::ShowReply& shown);

// Of a job's or a replica's name that lacks its experiment's number, as Kubeflow has none: a refusal with the form that works
// for the newest of `all` that is called so. None: nothing is.
std::optional<Error> lacks_number(std::string_view text, const pb::ListReply& all);

// RiseML's ".anna.4.worker.1" without the user: here an ID is of one experiment, whosever it is. "anna.4" may be meant
// otherwise, and is that for `me`, anna, alone. What is no such ID stays as it is.
std::string without_user(const std::string& text, std::string_view me);

// IDs instead of such names, or with a user before them, also of several with commas between; the daemon is asked only where there is one. What is no
// such name stays as it is.
Status replace_names(std::string& typed, const CommandContext& context);

}  // namespace dtrain::cli
