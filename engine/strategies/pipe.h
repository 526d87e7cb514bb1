// What passes between the stages of a pipeline: activations to the next, their gradients back. Owner
// and thread: one stage.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "engine/comm/channel.h"

namespace dtrain::engine {

class Pipe {
 public:
  // With participants `before` and `after`, who open theirs; none at the ends.
  static Result<std::unique_ptr<Pipe>> open(Team& team, int me, std::optional<int> before,
                                            std::optional<int> after, double deadline_seconds);

  // What follows is part of this step.
  void begin(int64_t step) { moment_.step = step; }

  // All return at once, with nothing to pass, at the end that has no neighbour.
  Status receive_input(std::span<float> values);
  Status send_output(std::span<const float> values);
  Status receive_output_gradient(std::span<float> values);
  Status send_input_gradient(std::span<const float> values);

 private:
  explicit Pipe(double deadline_seconds) : deadline_seconds_(deadline_seconds) {}

  Deadline deadline() const { return Deadline::after(deadline_seconds_); }

  const double deadline_seconds_;
  std::optional<Channel> before_, after_;
  Moment moment_{0, "pipeline"};
};

}  // namespace dtrain::engine
