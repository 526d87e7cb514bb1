// Which experiment is meant by a command that was typed without an ID. Pure.
#pragma once

#include <string>

#include "schema/dtrain.pb.h"
#include "schema/result.h"

namespace dtrain::cli {

// Of `live`, the list of what is not over: the newest of this project. Nothing of another project is ever
// killed by mistake: where there is none, it is refused with what there is elsewhere.
Result<std::string> newest_to_kill(const pb::ListReply& live, const std::string& project_dir);

// For `suspend` and `resume`: the one of this project that is not suspended, or that is, or is about to be. Of several
// none is chosen: typed twice, it would go on with the next. `live` has the members of sets, of which none is chosen either.
Result<std::string> only_to_suspend(const pb::ListReply& live, const std::string& project_dir, bool resume);

// The newest of this project that has processes; empty: there is none.
std::string newest_running(const pb::ListReply& live, const std::string& project_dir);

// Where `taken`, as the newest of all, is of another project than this one: a line that says so. Else empty.
std::string of_another_project(const pb::ExperimentInfo& taken, const std::string& project_dir);

}  // namespace dtrain::cli
