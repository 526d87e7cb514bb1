// When an elastic gang that runs is begun again with more workers.
//
// Who waits and finds room goes first: it is asked after the pass over the queue. Nor is it begun again while one ahead of it
// that is to come back still has seats, nor where who is ahead of it would then find room, and what the first of those keeps free stays so. From when it is stopped until it has its
// place again nobody gets what it is to have; a daemon that is started again meanwhile knows nothing of that.
#pragma once

#include <optional>
#include <vector>

#include "daemon/lifecycle_turn.h"
#include "daemon/queue.h"

namespace dtrain::daemon {

// When one that begins now may be begun again; 0: never.
TimeMs grows_from(const Spec& spec, TimeMs now);
// Whether it runs with fewer workers than it asks for, and is to have more some time.
bool may_grow(const Experiment& experiment);
// And its time has come: model.growing.
bool is_growing(const Experiment& experiment);
// On its way back into the queue: model.returning.
bool is_returning(const Experiment& experiment);

// The seats that it could have, if it could have more workers. `model` is as it was when this returns.
std::optional<std::vector<Seat>> larger_gang(Model& model, const Experiment& experiment, TimeMs now);

// What others may use while one that is begun again for more workers (model.regrowing) has no place. By hosts.
RoomByHost kept_for_growth(Model& model, const Experiment& experiment, TimeMs now);

// Begins at most one gang again, at no restart of its own; looks at a few of them, once a second.
void grow_one(Turn& turn);

}  // namespace dtrain::daemon
