// What a submission would come to in messages and in memory: refused before anything of it is sent.
#pragma once

#include "daemon/model.h"
#include "daemon/store.h"

namespace dtrain::daemon {

// InvalidArgument, with what is too much and how much of it there is, when a host could not be told to
// launch a gang of it in one message, or when the TF_CONFIGs of a gang would fill its memory. Pure.
Status check_size(const Submission& submission, const SubmissionExtras& extras);

}  // namespace dtrain::daemon
