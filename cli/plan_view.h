// `train --dry-run`: where each replica would land, or why it can't. Pure.
#pragma once

#include <string>

#include "cli/terminal.h"
#include "schema/dtrain.pb.h"
#include "schema/spec.h"

namespace dtrain::cli {

std::string render_plan(const pb::PlanReply& plan, const Spec& spec, const Screen& screen);
std::string plan_json(const pb::PlanReply& plan);

}  // namespace dtrain::cli
