// What `compare` prints: a table for a person, CSV for a program.
#pragma once

#include <string>

#include "cli/comparison.h"
#include "cli/view.h"

namespace dtrain::cli {

// The parameters that all share on one line, then a row an entry. On a narrow screen what all have alike goes,
// then duration, efficiency and speedup, then metrics but one from the last on, then parameters; `sorted_by` stays.
// The columns that had no room are named below.
std::string render_comparison(const Comparison& comparison, const std::string& sorted_by,
                              const View& view);

// RFC 4180, every number in full, and every parameter: a program reads no line above the table.
std::string comparison_csv(const Comparison& comparison);

}  // namespace dtrain::cli
