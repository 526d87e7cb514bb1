// What a runner and a keeper say about a command beside a replica. One connection a command, of packets: an ExecFrame
// with the command's descriptors, then the keeper's ExecNewsFrames; from the runner "signal <number>" any time after
// that. Who closes it gives the command up: it gets HUP, and KILL where that does not end it.
//
// The keeper listens beside `ctl`, in the abstract namespace, to its own user and to root only, and to who knows the
// launch's key: a program in an image is of the same user, and is not to get out by another launch.
//
// Thread: one of a process.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/fd.h"
#include "schema/launch_record.pb.h"
#include "schema/result.h"

namespace dtrain::runner {

// A terminal; or input, output and errors.
inline constexpr size_t kExecDescriptorsMax = 3;

// Both non-blocking. `ctl`: of LaunchRecord. FailedPrecondition from connect_exec(): the keeper is gone, or of a
// version that does not know this.
Result<Fd> listen_exec(const std::string& ctl);
Result<Fd> connect_exec(const std::string& ctl);

Status send_packet(int socket, std::string_view bytes, const std::vector<int>& descriptors = {});

// An error and what is said of it.
pb::ExecNewsFrame refusal(const Error& why);
Error error_of(const pb::ExecNewsFrame::Refused& refused);

struct ExecPacket {
  std::string bytes;   // empty: the other end has closed
  std::vector<Fd> descriptors;
};
// nullopt: none is there yet.
Result<std::optional<ExecPacket>> receive_packet(int socket);

}  // namespace dtrain::runner
