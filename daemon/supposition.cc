#include "daemon/supposition.h"

namespace dtrain::daemon {

Supposition::~Supposition() {
  for (const Seat& seat : taken_) free_.give(seat);
  for (const Seat& seat : given_) free_.take(seat);
  for (const auto& [host, port] : port_next_) free_.set_port_next(host, port);
}

void Supposition::give_all(const Experiment& experiment) {
  for (const Replica& replica : experiment.replicas) {
    if (!holds_seat(experiment, replica)) continue;
    given_.push_back(replica.seat);
    port_next_.try_emplace(replica.seat.host, free_.find(replica.seat.host)->port_next);
    free_.give(replica.seat);
  }
}

void Supposition::take(const std::vector<Seat>& seats) {
  for (const Seat& seat : seats) {
    port_next_.try_emplace(seat.host, free_.find(seat.host)->port_next);
    free_.take(seat);
    taken_.push_back(seat);
  }
}

}  // namespace dtrain::daemon
