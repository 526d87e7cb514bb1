// What runners and the CLI say, checked and turned into what the core knows. Bytes from a socket
// may say anything: what makes no sense is refused here, so that the core need not ask. Pure.
#pragma once

#include <optional>
#include <string>

#include "daemon/lifecycle.h"
#include "schema/dtrain.pb.h"
#include "schema/result.h"

namespace dtrain::daemon {

// A connected host; `boot_id` is the daemon's own.
Result<Host> host_from_message(const pb::Hello& hello, const std::string& boot_id);

// What a runner reports of its launches; nullopt: the message is about something else.
Result<std::optional<Event>> event_from_message(const HostId& host, const pb::FromRunner& message);

// `hosts` of the YAML as is_wanted() takes them.
std::string hosts_wanted(const Spec& spec);

// Without a number: the store gives it.
Result<Submission> submission_from_message(const pb::SubmitHeader& header);

}  // namespace dtrain::daemon
