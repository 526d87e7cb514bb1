// What an experiment that the daemon knows was asked for, to be read again.
#pragma once

#include <string>
#include <vector>

#include "schema/dtrain.pb.h"
#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain::cli {

// InvalidArgument where the ID is a replica's: `command` takes all of an experiment. It may be empty.
Status check_whole(const std::string& id, std::string_view command);

// How its YAML is read with a command line's changes (-p, --set). A member is read alone, with its values.
Result<ParseOptions> parsing_of(const pb::ShowReply& shown, const std::vector<std::string>& parameters,
                                const std::vector<std::string>& settings);

// How it began before is no part of what it was, so that only what is said now counts.
bool begins_suspended(const Spec& spec, const ParseOptions& parsing);

}  // namespace dtrain::cli
