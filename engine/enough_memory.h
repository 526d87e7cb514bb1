// Memory that isn't there ends a training as any other error does.
#pragma once

#include <new>

#include "schema/result.h"

namespace dtrain::engine {

// What body() returns. ResourceExhausted: it threw bad_alloc.
template <class Body>
Status with_enough_memory(const Body& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return Error{Code::ResourceExhausted, "there is not enough memory", "a smaller model, or a smaller micro-batch"};
  }
}

}  // namespace dtrain::engine
