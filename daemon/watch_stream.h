// One person watching one experiment: journal items from a cursor on, then live, until it is over.
//
// Owner: gRPC until done. Thread: loop. Costs nothing while its reader stalls: the journal is the
// buffer. A cursor past the end of the journal stands for its end: only what is new.
#pragma once

#include "daemon/logs.h"
#include "daemon/reactor.h"
#include "daemon/scheduler.h"
#include "schema/dtrain.grpc.pb.h"

namespace dtrain::daemon {

std::shared_ptr<WriteStream<pb::WatchBatch>> start_watch(boost::asio::io_context& loop, grpc::CallbackServerContext& call,
                                                         Scheduler& scheduler, Logs& logs,
                                                         const pb::WatchRequest& request);

}  // namespace dtrain::daemon
