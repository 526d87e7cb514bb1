#include "runner/replica_session.h"

#include <algorithm>
#include <utility>

#include "schema/exec_limits.h"

namespace dtrain::runner {

ReplicaSession::ReplicaSession(std::shared_ptr<ExecPeer> peer, std::function<void()> over)
    : peer_(std::move(peer)), over_(std::move(over)) {}

void ReplicaSession::hear_peer() {
  peer_->on_input = [self = weak_from_this()](const pb::ExecInput& message) {
    if (const auto live = self.lock()) live->on_input(message);
  };
  peer_->on_closed = [self = weak_from_this()] {
    if (const auto live = self.lock()) live->finish();
  };
}

void ReplicaSession::refuse(const Error& why) {
  if (is_over()) return;
  pb::ExecOutput message;
  message.mutable_refused()->set_code(static_cast<uint32_t>(why.code));
  message.mutable_refused()->set_message(why.message);
  message.mutable_refused()->set_hint(why.hint);
  end_with(std::move(message));
}

void ReplicaSession::drop() {
  over_ = [] {};
  finish();
}

void ReplicaSession::end_with(pb::ExecOutput message) {
  peer_->send(std::move(message));
  peer_->end();
  finish();
}

void ReplicaSession::finish() {
  const auto tell = std::exchange(over_, nullptr);
  if (!tell) return;
  close();
  tell();
}

bool ReplicaSession::add_input(const std::string& bytes) {
  if (waiting_.size() + bytes.size() > 2 * kExecWindowBytes) {
    peer_->end();
    finish();
    return false;
  }
  waiting_ += bytes;
  return true;
}

void ReplicaSession::input_gone(size_t bytes) {
  if (bytes == 0) return;
  waiting_.erase(0, bytes);
  pb::ExecOutput message;
  message.set_taken(bytes);
  peer_->send(std::move(message));
}

bool ReplicaSession::may_send_output() const { return untaken_ < kExecWindowBytes; }

void ReplicaSession::output_taken(uint64_t bytes) { untaken_ -= std::min(untaken_, bytes); }

}  // namespace dtrain::runner
