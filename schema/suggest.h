// "did you mean": the known word nearest to a misspelt one.
#pragma once

#include <string_view>
#include <vector>

namespace dtrain {

// Insertions, deletions, substitutions and swaps of neighbours that turn `a` into `b`, letters'
// case aside.
size_t edit_distance(std::string_view a, std::string_view b);

// The nearest of `known`; empty when none is near enough to be what was meant.
std::string_view nearest(std::string_view word, const std::vector<std::string_view>& known);

}  // namespace dtrain
