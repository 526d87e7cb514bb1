// The rules between the keys of `engine:`, and between them and the roles, which no single key can
// break.
#pragma once

#include <string>
#include <vector>

#include "schema/engine_spec.h"

namespace dtrain {

struct EngineRoles {
  int workers = 1;  // the master is one of them
  int servers = 0;
  int gpus = 0;       // of the worker that has fewest
  int most_gpus = 0;  // of any
  int least_workers = 0;  // of an elastic gang; 0: it has `workers`, no more and no fewer
};

struct EngineProblem {
  std::string key;   // below `engine`, as in YAML: "model.gpt.heads"
  std::string text;  // what is wrong and what to do
};

// What is wrong whatever the roles are.
std::vector<EngineProblem> check_engine(const EngineSpec& spec);
// What can't be run by these roles.
std::vector<EngineProblem> check_engine_roles(const EngineSpec& spec, const EngineRoles& roles);

// The word of YAML: "parameter-server".
std::string_view to_string(Strategy strategy);

}  // namespace dtrain
