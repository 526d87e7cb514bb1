// Sets whose members are the same training. Pure.
#pragma once

#include <string>

#include "schema/spec.h"

namespace dtrain::cli {

// The engine is told by its section alone, and the same section trains to the same bits. Names the
// first parameter that makes members with the same; empty when there is none.
std::string same_members_warning(const Spec& spec);

// Of a set whose lists go together, as those of one that was drawn: members that are like an earlier one go. How many
// those were. A set with lists where one value belongs stays as it is.
uint64_t drop_repeated_members(Spec& spec);

}  // namespace dtrain::cli
