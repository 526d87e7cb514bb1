// One submission on its way in: header, then what is missing of its snapshot, then a number.
//
//   header -> missing{manifest} -> its blob -> missing{files} -> their blobs -> accepted
//
// Each step is left out when nothing is missing. Accepted is said after everything is durable.
#pragma once

#include <chrono>

#include "daemon/blobs.h"
#include "daemon/reactor.h"
#include "daemon/rights.h"
#include "daemon/scheduler.h"
#include "schema/dtrain.grpc.pb.h"

namespace dtrain::daemon {

// Owner: gRPC. Thread: loop. Ends with Cancelled when its client says nothing for `patience`, at most twice that.
std::shared_ptr<BidiStream<pb::SubmitRequest, pb::SubmitReply>> start_submit(
    boost::asio::io_context& loop, grpc::CallbackServerContext& call, Scheduler& scheduler,
    Blobs& blobs, const Person& person, std::chrono::milliseconds patience);

}  // namespace dtrain::daemon
