// From lists of values to combinations of them: what makes the members of a set. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "schema/spec.h"

namespace dtrain {

// Of the lists together; UINT64_MAX where it is more than that. With Zip the lists of one value go with all of others.
uint64_t combination_count(const std::vector<Parameter>& lists, Combine combine);

// Which value each list has in combination number `kind`, from 0. With Product they count like an odometer: the last
// list is the wheel that turns fastest.
std::vector<size_t> combination(const std::vector<Parameter>& lists, Combine combine, uint64_t kind);

// The lists, each with the one value that it has there.
std::vector<Parameter> chosen_values(const std::vector<Parameter>& lists, Combine combine, uint64_t kind);

}  // namespace dtrain
