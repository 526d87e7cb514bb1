#include "runner/output_calls.h"

#include <grpcpp/grpcpp.h>

#include "schema/dtrain.grpc.pb.h"

namespace dtrain::runner {
namespace {

constexpr size_t kBytesTogether = 512 << 10;

// The numbers are the same.
Status status_of(const grpc::Status& status) {
  if (status.ok()) return ok();
  return Error{static_cast<Code>(status.error_code()), status.error_message(), status.error_details()};
}

// One of so many calls.
class Turn {
 public:
  explicit Turn(std::counting_semaphore<>& turns) : turns_(turns) { turns_.acquire(); }
  ~Turn() { turns_.release(); }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::counting_semaphore<>& turns_;
};

}  // namespace

Result<pb::OutputList> OutputCalls::list(const pb::OutputsRequest& of) {
  const Turn turn(others_);
  Link::Call call(link_);
  const auto reader = pb::Outputs::NewStub(link_.channel())->List(&call.context(), of);
  pb::OutputList all, part;
  while (reader->Read(&part)) {
    all.set_is_file(part.is_file());
    for (pb::OutputEntry& entry : *part.mutable_entries()) *all.add_entries() = std::move(entry);
  }
  TRY(status_of(reader->Finish()));
  return all;
}

Status OutputCalls::read(const pb::ReadOutputsRequest& request,
                         const std::function<Status(const pb::OutputPart&)>& part) {
  const Turn turn(others_);
  Link::Call call(link_);
  const auto reader = pb::Outputs::NewStub(link_.channel())->Read(&call.context(), request);
  pb::OutputPart message;
  Status taken = ok();
  while (taken.ok() && reader->Read(&message)) taken = part(message);
  if (!taken.ok()) call.context().TryCancel();
  const Status ended = status_of(reader->Finish());
  TRY(std::move(taken));
  return ended;
}

Result<pb::WriteOutputsReply> OutputCalls::write(const pb::OutputsRequest& of,
                                                 const std::function<Status(const Say&)>& parts) {
  const Turn turn(writes_);
  Link::Call call(link_);
  pb::WriteOutputsReply reply;
  const auto writer = pb::Outputs::NewStub(link_.channel())->Write(&call.context(), &reply);
  pb::OutputParts together;   // small files by the hundred
  *together.mutable_of() = of;
  size_t bytes = 0;
  const auto send = [&] {
    const bool sent = writer->Write(together);
    together.Clear();
    bytes = 0;
    return sent;
  };
  Status said = parts([&](const pb::OutputPart& part) {
    bytes += part.ByteSizeLong();
    *together.add_parts() = part;
    return bytes < kBytesTogether || send();
  });
  if (said.ok()) send();
  if (!said.ok()) call.context().TryCancel();
  writer->WritesDone();
  const Status ended = status_of(writer->Finish());
  TRY(std::move(said));
  TRY(ended);
  return reply;
}

Result<pb::OverReply> OutputCalls::over(const pb::OverRequest& request) {
  const Turn turn(others_);
  Link::Call call(link_);
  pb::OverReply reply;
  TRY(status_of(pb::Outputs::NewStub(link_.channel())->Over(&call.context(), request, &reply)));
  return reply;
}

}  // namespace dtrain::runner
