// The outputs of experiments at the daemon, by calls beside the runner's stream.
#pragma once

#include <semaphore>

#include "runner/link.h"
#include "runner/outbox.h"
#include "schema/output_limits.h"

namespace dtrain::runner {

// Thread: any but the loop's and gRPC's; each waits while there are as many calls as a host may have. `link` outlives it,
// and ends its calls.
class OutputCalls final : public OutputStore {
 public:
  explicit OutputCalls(Link& link) : link_(link) {}

  Result<pb::OutputList> list(const pb::OutputsRequest& of) override;
  Status read(const pb::ReadOutputsRequest& request, const std::function<Status(const pb::OutputPart&)>& part) override;
  Result<pb::WriteOutputsReply> write(const pb::OutputsRequest& of,
                                      const std::function<Status(const Say&)>& parts) override;
  Result<pb::OverReply> over(const pb::OverRequest& request) override;

 private:
  Link& link_;
  std::counting_semaphore<> writes_{kOutputWritesAtOnce}, others_{kOtherOutputCallsAtOnce};
};

}  // namespace dtrain::runner
