#include "cli/remote_outputs.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <utility>

#include "cli/connection.h"
#include "cli/signals.h"

namespace dtrain::cli {

namespace {

constexpr uint64_t kFileBytesMost = uint64_t{4} << 30;   // of a temporary one
constexpr size_t kNamesAtOnceBytes = 256 << 10;   // of one request, which is one message

// False: there is no more, or a signal came.
bool next(RpcCall& call, Signals* signals, pb::OutputPart& part, int& stopped_by) {
  while (true) {
    stopped_by = signals == nullptr ? 0 : signals->take();
    if (stopped_by != 0) return false;
    if (call.take(part)) return true;
    if (call.ended()) return false;
    std::array<pollfd, 2> waits = {{{call.fd(), call.events(), 0}, {signals == nullptr ? -1 : signals->fd(), POLLIN, 0}}};
    (void)::poll(waits.data(), waits.size(), -1);
  }
}

}  // namespace

Result<ListedOutputs> list_outputs(RpcChannel& channel, const std::string& id) {
  pb::OutputsRequest request;
  request.set_experiment(id);
  RpcCall call(channel, kListOutputsMethod);
  call.write(request);
  call.writes_done();
  ListedOutputs listed;
  for (pb::OutputList part; call.read(part);) {
    for (pb::OutputEntry& entry : *part.mutable_entries()) listed.entries.push_back(std::move(entry));
    for (pb::OutputTrouble& trouble : *part.mutable_left_out()) listed.left_out.push_back(std::move(trouble));
  }
  TRY(call.finish());
  return listed;
}

Status read_outputs(RpcChannel& channel, const std::string& id, const std::vector<std::string>& paths, Signals* signals,
                    int& stopped_by, const std::function<Status(const pb::OutputPart&)>& take) {
  for (size_t named = 0; named < paths.size();) {
    pb::ReadOutputsRequest request;
    request.mutable_of()->set_experiment(id);
    for (size_t bytes = 0; named < paths.size() && bytes < kNamesAtOnceBytes; ++named) {
      request.add_paths(paths[named]);
      bytes += paths[named].size() + 8;
    }
    RpcCall call(channel, kReadOutputsMethod);
    call.write(request);
    call.writes_done();
    for (pb::OutputPart part; next(call, signals, part, stopped_by);) TRY(take(part));
    if (stopped_by != 0) return Error{Code::Cancelled, "interrupted", ""};
    TRY(call.finish());
  }
  return ok();
}

FilePointer open_output(RpcChannel& channel, const std::string& id, const std::string& path) {
  FilePointer file(std::tmpfile());
  if (!file) return nullptr;
  bool is_whole = false;
  int stopped_by = 0;
  uint64_t left = kFileBytesMost;
  const Status read = read_outputs(channel, id, {path}, nullptr, stopped_by, [&](const pb::OutputPart& part) -> Status {
    is_whole = part.last();
    if (part.data().size() > left) return Error{Code::ResourceExhausted, "too large a file", ""};
    left -= part.data().size();
    if (std::fwrite(part.data().data(), 1, part.data().size(), file.get()) == part.data().size()) return ok();
    return Error{Code::ResourceExhausted, "no room for a temporary file", ""};
  });
  if (!read.ok() || !is_whole || std::fflush(file.get()) != 0) return nullptr;
  std::rewind(file.get());
  return file;
}

}  // namespace dtrain::cli
