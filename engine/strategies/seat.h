// Where a participant sits: its part of the model, and those whose parts are beside it.
#pragma once

#include "engine/gradient_taker.h"
#include "engine/kernels/crew.h"
#include "engine/models/model_part.h"
#include "engine/strategies/group_partners.h"
#include "engine/strategies/pipe.h"

namespace dtrain::engine {

struct Seat {
  ModelPart part = {};
  GroupPartners* partners = nullptr;  // with several slices
  Pipe* pipe = nullptr;               // with several stages
  Crew* crew = nullptr;               // where several threads compute it together
  GradientTaker<float>* taker = nullptr;  // who takes gradients, of which there is no arena then
};

}  // namespace dtrain::engine
