// Hands a submission to the daemon: the header, then whatever of the snapshot the daemon lacks.
//
// A submission carries a random id. When the daemon goes away in the middle, the same submission is
// sent again, and whether the first one was accepted or not, there is one experiment in the end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "cli/command.h"
#include "cli/connection.h"
#include "cli/signals.h"
#include "schema/snapshot.h"
#include "schema/spec.h"

namespace dtrain::cli {

// Who submits, and the python environment that is active in this shell (VIRTUAL_ENV, CONDA_PREFIX).
void add_user(pb::SubmitHeader& header);
// Who types: DTRAIN_USER, or the name of the account.
std::string user_name();

// The variables that the Spec wants from this shell, but for `known` ones; InvalidArgument names one that is not set.
Status take_secrets(const Spec& spec, pb::SubmitHeader& header, const std::map<std::string, std::string>& known = {});

// A new submission of the files that an experiment had, with the python environment that was active then.
Result<pb::SubmitHeader> header_again(const Spec& spec, const pb::ShowReply& shown);

// Bytes of its files that are sent and that are to be sent; counted before compression.
using SubmitProgress = std::function<void(uint64_t sent_bytes, uint64_t total_bytes)>;

// `blobs` may be null when the daemon is known to have the snapshot; NotFound when it does not.
// Aborted when a file changed since the snapshot was taken: take another one, with a new id.
// `connection` is replaced when the daemon had to be reached again. One of `tied` that comes while
// files are sent ends this process; a later one waits to be taken, for there may be an experiment.
Result<pb::Accepted> submit(Connection& connection, const CommandContext& context,
                            const pb::SubmitHeader& header, SnapshotBlobs* blobs,
                            const SubmitProgress& progress, Signals* tied = nullptr);

}  // namespace dtrain::cli
