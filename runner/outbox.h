// Where the agent's messages go: the link to the daemon, or a test's recorder.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "schema/dtrain.pb.h"
#include "schema/result.h"

namespace dtrain::runner {

// Thread: loop. A message sent while no stream is open is dropped: after the next Welcome the agent
// repeats every fact the daemon may have missed.
class Outbox {
 public:
  virtual ~Outbox() = default;
  virtual void send(pb::FromRunner message) = 0;
};

// Where bytes of a snapshot come from. Thread: the one that prepares, which waits for the answer.
class BlobSource {
 public:
  virtual ~BlobSource() = default;
  // Calls `part` with each blob's parts in order, blob after blob; an error of `part` ends the
  // fetch. Unavailable when the daemon is gone, NotFound when it lacks one.
  virtual Status fetch(const std::vector<std::string>& sha256,
                       const std::function<Status(const pb::BlobPart&)>& part) = 0;
};

}  // namespace dtrain::runner
