#include "engine/strategies/pipe.h"

namespace dtrain::engine {

Result<std::unique_ptr<Pipe>> Pipe::open(Team& team, int me, std::optional<int> before,
                                         std::optional<int> after, double deadline_seconds) {
  std::unique_ptr<Pipe> pipe(new Pipe(deadline_seconds));
  if (before) {
    TRY(Channel channel, Channel::open(team, me, *before, pipe->deadline()));
    pipe->before_ = std::move(channel);
  }
  if (after) {
    TRY(Channel channel, Channel::open(team, me, *after, pipe->deadline()));
    pipe->after_ = std::move(channel);
  }
  return pipe;
}

Status Pipe::receive_input(std::span<float> values) {
  return before_ ? before_->receive(values, deadline(), moment_) : ok();
}
Status Pipe::send_output(std::span<const float> values) {
  return after_ ? after_->send(values, deadline(), moment_) : ok();
}
Status Pipe::receive_output_gradient(std::span<float> values) {
  return after_ ? after_->receive(values, deadline(), moment_) : ok();
}
Status Pipe::send_input_gradient(std::span<const float> values) {
  return before_ ? before_->send(values, deadline(), moment_) : ok();
}

}  // namespace dtrain::engine
