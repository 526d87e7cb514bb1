// Blobs on their way to a runner, in the order asked for, one part at a time.
#pragma once

#include "daemon/blobs.h"
#include "daemon/reactor.h"
#include "schema/dtrain.grpc.pb.h"

namespace dtrain::daemon {

// Owner: gRPC. The stream ends with NotFound at the first blob that is not there.
std::shared_ptr<WriteStream<pb::BlobPart>> start_fetch(boost::asio::io_context& loop,
                                                       grpc::CallbackServerContext& call,
                                                       Blobs& blobs,
                                                       const pb::FetchRequest& request);

}  // namespace dtrain::daemon
