// What a dtrain.yml asks for and this version leaves out. Pure.
#pragma once

#include <string>

#include "schema/spec.h"

namespace dtrain {

// A line to tell a person; empty when nothing is left out.
std::string left_out_note(const Spec& spec);

}  // namespace dtrain
