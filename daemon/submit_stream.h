// One submission on its way in: header, then what is missing of its snapshot, then a number.
//
//   header -> missing{manifest} -> its blob -> missing{files} -> their blobs -> accepted
//
// Each step is left out when nothing is missing. Accepted is said after everything is durable.
#pragma once

#include "daemon/blobs.h"
#include "daemon/reactor.h"
#include "daemon/rights.h"
#include "daemon/scheduler.h"
#include "schema/dtrain.grpc.pb.h"

namespace dtrain::daemon {

// Owner: gRPC. Thread: loop.
std::shared_ptr<BidiStream<pb::SubmitRequest, pb::SubmitReply>> start_submit(
    boost::asio::io_context& loop, grpc::CallbackServerContext& call, Scheduler& scheduler,
    Blobs& blobs, const Person& person);

}  // namespace dtrain::daemon
