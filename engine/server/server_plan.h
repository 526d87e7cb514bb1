// What a server does with what it is told of the data.
#pragma once

#include <cstdint>

#include "engine/data/data_facts.h"
#include "engine/layout.h"

namespace dtrain::engine {

struct ServerPlan {
  Layout layout;
  int64_t most_ahead = 0;  // async, ssp: pushes that others may be ahead of worker 0; 0: any number
  Range last_epoch = {};   // its parts of all the training's; others end it no sooner than worker 0 begins it
  DataFacts data = {};     // what all workers must find of it
  int told_by = -1;        // the worker, -1: nobody
};

}  // namespace dtrain::engine
