// What `dtrain daemon` says. Pure.
#pragma once

#include <string>

#include "cli/view.h"
#include "schema/dtrain.pb.h"
#include "schema/home.h"

namespace dtrain::cli {

// Of `daemon stop`, with what was left running.
std::string render_shutdown(const pb::ShutdownReply& reply, uint64_t pid);
// Of `daemon status` while one runs; `live` is what it works on.
std::string render_daemon(const pb::InfoReply& info, const Home& home, const pb::ListReply& live,
                          const View& view);

}  // namespace dtrain::cli
