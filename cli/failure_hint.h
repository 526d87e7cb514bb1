// What to do about a failure, besides reading its log. Pure, and said as `dtrain ...`: whoever prints it says how that is called.
#pragma once

#include <string>

#include "schema/dtrain.pb.h"

namespace dtrain::cli {

// What has to change before it is started again. Empty: its log tells, or nothing is known to.
std::string mending_hint(const pb::ShowReply& reply);
// That, or else what starts it again, and does so by itself. Empty for a program that ended by itself.
std::string failure_hint(const pb::ShowReply& reply);

}  // namespace dtrain::cli
