// What --after and --after-end say: experiments that are to end before this one begins.
#pragma once

#include <string>
#include <vector>

#include "cli/connection.h"
#include "schema/ids.h"
#include "schema/result.h"
#include "schema/spec.h"

namespace dtrain::cli {

struct AwaitedWords {
  std::vector<std::string> after;   // each one or several with commas between
  std::vector<std::string> after_end;
  bool are_given() const { return !after.empty() || !after_end.empty(); }
};

// Takes the place of what the YAML says of both. InvalidArgument names what is no experiment.
Status put_awaited(const AwaitedWords& words, Spec& spec);

// Where the results of the first of them are, or will be, for the program: AFTER_DIR. Refuses experiments that there are not.
Status put_awaited_directory(Connection& connection, Spec& spec);

}  // namespace dtrain::cli
