// What is listed by `status --kubeflow`: as `kubectl get pytorchjobs` shows it, in Kubeflow's words. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/view.h"
#include "schema/dtrain.pb.h"
#include "schema/ids.h"

namespace dtrain::cli {

// What Kubeflow calls a state of ours: Created, Running, Restarting, Suspended, Succeeded, Failed; empty for what is none.
std::string_view kubeflow_state(std::string_view state);
// As Kubernetes writes it: 90s, 5m30s, 3h, 2d4h.
std::string kubernetes_age(uint64_t age_ms);

// NAME is kubeflow_name().
std::string render_kubeflow(const pb::ListReply& reply, const View& view);
// The replicas of one that `pattern` names, as `kubectl get pods` shows them, each with its ID here. Empty: there are none yet.
std::string render_kubeflow_replicas(const pb::ShowReply& reply, const IdPattern& pattern, const View& view);

}  // namespace dtrain::cli
