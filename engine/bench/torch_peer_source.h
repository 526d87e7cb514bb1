#pragma once

namespace dtrain::engine {

// What python runs, as its argument of -c.
extern const char* const kTorchPeerSource;

}  // namespace dtrain::engine
