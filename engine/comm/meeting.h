// Where all participants come together, and each tells all others a few numbers: its notes. On one host they lie in the
// team's memory; between hosts the first process of each sends those of its host.
//
// Owner: a strategy, one a process. Thread: each call is made by every participant, in the same order everywhere; the
// first thread of a process moves what goes between hosts.
// Promises: an error ends all participants, with one text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/comm/team.h"
#include "engine/comm/wire.h"

namespace dtrain::engine {

class Meeting {
 public:
  explicit Meeting(Team& team);

  // `notes` (at most kMostNotes, everywhere as many, or none) reach everyone: `all`, of world() * notes.size(), has them by
  // participant. Nobody returns before all have called it, of whatever host, with no notes too.
  Status gather(int me, int64_t step, Deadline deadline, std::span<const double> notes, std::span<double> all);
  // Nobody returns before participant 0 has called it, which may take `work_seconds`. Who knows that it has gives the
  // others on its host `deadline_seconds`.
  Status wait_for_first(int me, int64_t step, double work_seconds, double deadline_seconds);

  // ---- for an exchange, which takes notes along
  // What goes between hosts; all of this host meet afterwards.
  Status move(int me, Op op, const std::vector<Transfer>& sends, const std::vector<Transfer>& receives, Deadline deadline,
              const Moment& moment);
  // The notes of a set are written before a barrier of the team, go to other hosts after it, and are read then; the next ones
  // are of another set.
  int write(int me, std::span<const double> notes);
  Status pass_on(int me, int set, size_t count, Deadline deadline, const Moment& moment);
  void read(int set, size_t count, std::span<double> all) const;

  Wire& wire() { return wire_; }
  bool moves(int me) const { return me == gang_.first(); }
  bool several_hosts() const { return gang_.hosts().size() > 1; }

 private:
  struct alignas(64) Own {
    uint64_t written = 0;   // picks the set
  };

  Team& team_;
  Gang& gang_;
  Wire wire_;
  std::vector<Own> own_;   // of each thread
  uint64_t came_ = 0;      // what process 0 tells other hosts of itself says nothing
};

}  // namespace dtrain::engine
