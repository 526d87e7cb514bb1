// dtrain-engine bench: what there is to measure, from its words to its tables.
#pragma once

#include <functional>

#include "schema/result.h"

namespace CLI {
class App;
}

namespace dtrain::engine {

// Adds `bench` to the program; `end` takes what came of it.
void add_bench(CLI::App& program, const std::function<void(const Status&)>& end);

}  // namespace dtrain::engine
