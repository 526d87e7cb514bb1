// The list of `status`: one line an experiment, members as branches of their set.
#pragma once

#include <string>
#include <vector>

#include "cli/view.h"
#include "schema/dtrain.pb.h"

namespace dtrain::cli {

std::string render_list(const pb::ListReply& reply, const View& view);

// Leaves the newest `last` experiments, with their members, of a list that is in order. That there are
// others is told in a line, which is empty when there are none; `options`, " --project" say, are what the list was asked for with.
std::string take_newest(pb::ListReply& reply, uint64_t last, const std::string& options);

// A line for each set that is listed with some of its members: very many are not all sent.
std::string members_left_out(const pb::ListReply& reply);
// A line for each that waits for a host that is away; or nothing.
std::string waits(const pb::ListReply& reply);

// When the list is empty: what to do next. `newest` (null: there is none) is the newest that ended.
// `of_project`: of this project's only.
std::string render_nothing(const pb::ExperimentInfo* newest, bool of_project, const View& view);

// The hyperparameters on one line, sorted: "batch-size=64, learning-rate=0.1".
std::string parameters_text(const pb::ExperimentInfo& info);
// The same for each of several, of those parameters that tell them apart; of all where none does. Of
// one at least.
std::vector<std::string> differing_texts(const std::vector<const pb::ExperimentInfo*>& infos);

}  // namespace dtrain::cli
