// A set again, with only those of its members that have ended otherwise than FINISHED. Pure.
#pragma once

#include "schema/dtrain.pb.h"
#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain::cli {

// What makes the YAML of the set that `shown` is, with all of its members, a set of those that failed or were killed.
// FailedPrecondition where there are none, InvalidArgument where it is no set.
Result<ParseOptions> only_failed(const pb::ShowReply& shown, ParseOptions parsing);

}  // namespace dtrain::cli
