// An experiment's facts as one row of the database and back. What is derived is left out: load it, then
// call rebuild() (lifecycle.h).
#pragma once

#include "daemon/model.h"
#include "schema/dtrain.pb.h"
#include "schema/result.h"

namespace dtrain::daemon {

pb::ExperimentRecord to_record(const Experiment& experiment, TimeMs now, const std::string& boot_id);

// `submission` is the one of record's number. Durations continue from what was stored: within the same
// boot the clock went on, after a reboot it starts at the last stored value. DataLoss: it makes no sense.
Result<Experiment> from_record(const pb::ExperimentRecord& record, const ExperimentId& id,
                               std::shared_ptr<const Submission> submission, TimeMs now,
                               const std::string& boot_id);

pb::SeatInfo to_message(const Seat& seat);
Result<Seat> seat_from_message(const pb::SeatInfo& message);
pb::ExitStatus to_message(const Exit& exit);
Exit exit_from_message(const pb::ExitStatus& message);

}  // namespace dtrain::daemon
