// How the worker processes of a launch meet: each listens at its own port and connects to those
// before it; a hello both ways says who it is. Those who share a host find out by passing memory.
//
// Strangers (no hello, another launch's) are dropped and harm nobody. Two processes that would not
// train the same model are an error at both that names both. On the deadline the error lists who is
// missing; but who listens by then and says nothing reads its data, and is waited for up to kReadSeconds. Blocks; one
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/comm/gang.h"
#include "engine/comm/place.h"

namespace dtrain::engine {

struct Attendance {
  Place place;
  int threads = 1;
  uint64_t layout_hash = 0;  // of the model's arenas
  uint64_t spec_hash = 0;    // of everything else that must be the same
  std::string instructions = {};  // what it computes with; told to the others
  // Only those who pretend the same can share memory: makes one host look like several.
  int pretended_host = 0;
};

// Where the others find this process once it comes to meet(). Not open if it is alone.
Result<Listener> listen_for_others(const Place& place);

// `listener`: at this process's own port, or none yet.
Result<std::unique_ptr<Gang>> meet(const Attendance& own, Deadline deadline,
                                   Listener listener = {});

// Tells this host, as far as it can share memory, from others; 0 if that cannot be told.
uint64_t host_identity();

}  // namespace dtrain::engine
