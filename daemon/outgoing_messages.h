// What the core decided, as messages: to a host's runner, and to the people who watch. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/lifecycle.h"
#include "daemon/output_mark.h"
#include "schema/dtrain.pb.h"

namespace dtrain::daemon {

pb::StateEvent to_message(const StateChange& change, uint64_t time_unix_ms);

pb::Start to_message(const SendStart& start);
pb::Stop to_message(const SendStop& stop);
pb::Forget to_message(const SendForget& forget);

// `experiment` is the one that is launched. `extras`: nullptr if its submission has none.
pb::Launch to_message(const SendLaunch& launch, const Experiment& experiment,
                      const SubmissionExtras* extras, const std::string& output_dir, const std::string& after_dir,
                      const OutputMark& output_mark, uint64_t spool_limit_bytes);

}  // namespace dtrain::daemon
