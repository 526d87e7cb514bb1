// What --after and --after-end say: experiments that are to end before this one begins.
#pragma once

#include <string>
#include <vector>

#include "schema/ids.h"
#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain::cli {

struct AwaitedWords {
  std::vector<std::string> after;   // each one or several with commas between
  std::vector<std::string> after_end;
  bool are_given() const { return !after.empty() || !after_end.empty(); }
};

// Each takes the place of its key of the YAML. InvalidArgument names what is no experiment.
Status put_awaited(const AwaitedWords& words, Spec& spec);

}  // namespace dtrain::cli
