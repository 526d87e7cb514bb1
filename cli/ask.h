// A question whose answer decides whether something large or final is done.
#pragma once

#include <string>

#include "schema/result.h"

namespace dtrain::cli {

// Whoever sits at a terminal is asked, "QUESTION [y/N] ", and may say no; without one the answer is
// `refusal`.
Result<bool> ask(const std::string& question, Error refusal);

}  // namespace dtrain::cli
