// What is set and changes nothing here. Pure.
#pragma once

#include <string>
#include <vector>

#include "schema/spec.h"

namespace dtrain::cli {

// A line for each: `concurrency` without a set, `completion: all-workers` without workers beside the decider.
std::vector<std::string> idle_keys_warnings(const Spec& spec);

// For --rebuild; empty where there is something to make anew.
std::string idle_rebuild_warning(const Spec& spec);

}  // namespace dtrain::cli
