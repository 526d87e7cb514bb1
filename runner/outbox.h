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

// The outputs of experiments at the daemon, for a host that does not see them. Thread: one that may wait for the
// answer. Unavailable when the daemon is gone.
class OutputStore {
 public:
  virtual ~OutputStore() = default;
  // See the service Outputs.
  virtual Result<pb::OutputList> list(const pb::OutputsRequest& of) = 0;
  virtual Status read(const pb::ReadOutputsRequest& request,
                      const std::function<Status(const pb::OutputPart&)>& part) = 0;
  // `parts` says them one after the other; said() is false once nobody listens.
  using Say = std::function<bool(const pb::OutputPart&)>;
  virtual Result<pb::WriteOutputsReply> write(const pb::OutputsRequest& of,
                                              const std::function<Status(const Say&)>& parts) = 0;
  virtual Result<pb::OverReply> over(const pb::OverRequest& request) = 0;
};

}  // namespace dtrain::runner
